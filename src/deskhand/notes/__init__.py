"""Notes: a vault of Markdown files, read and changed safely, listed and searched through a disposable index.

Who calls whom:

    vault            what can be done with notes; other packages begin here
    ├── paths, disk          a name inside the vault, and its file, read and replaced safely
    ├── folders              the desk's own folders
    ├── frontmatter, links   the text of one note: its properties, its links to others and its tags
    ├── editing, outline     changes of parts of a note, and where its parts stand
    ├── templates            what is filled into a new note
    └── index        lists and searches; every hit is verified in its file
        ├── upkeep           keeps the catalog as the files are
        │   ├── walk         the notes as the file system has them
        │   └── watch        what changed, as the system reports it
        ├── lookup           asks the catalog for candidates, in the order of the answer
        ├── catalog          the index file: its tables, and what is filed in them
        └── matching         what matches a query and what is shown of it; text in, text out
"""
