"""The checks of `deskhand doctor`: each looks at one part of the machine or the desk and returns a finding."""
