"""From the inbox to the approved reply: watcher, triage, drafts, and the sending of what a person approved.

Each step is a row with a unique key and a lease (steps.py), so that any number of workers may be killed at any moment.
Notes and drafts are files in the vault (files.py); that a mail was sent is what the gate's ledger says, nothing else.
"""
