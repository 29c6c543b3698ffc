//! Error messages of the form `cannot X: Y`, with an optional hint.

use std::{
    fmt,
    io::{Error, ErrorKind},
    path::Path,
};

/// A failed action, with the reason and a hint. All messages about files have this form.
///
/// ```
/// use std::fs::File;
///
/// use squall_units::Cannot;
///
/// let path = "/nowhere/load.toml";
/// let missing = Cannot::read(path, &File::open(path).unwrap_err());
/// assert_eq!(missing.to_string(), "cannot read /nowhere/load.toml: there is no such file");
/// assert!(missing.is_usage());
///
/// let up = Cannot::new("stop lab \"lab\"", "it is not up").with_hint("squall lab list");
/// assert_eq!(up.to_string(), "cannot stop lab \"lab\": it is not up\n  try squall lab list");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cannot {
    /// The verb and its object, such as `read load.toml`.
    pub what: String,
    pub why: String,
    /// A suggestion, printed after `try`.
    pub hint: Option<String>,
    kind: ErrorKind,
}

impl Cannot {
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string(), hint: None, kind: ErrorKind::Other }
    }

    /// Returns the error for `what`, with the reason that the operating system gave.
    pub fn of_io(what: impl Into<String>, error: &Error) -> Self {
        Self { kind: error.kind(), ..Self::new(what, reason(error)) }
    }

    pub fn read(path: impl AsRef<Path>, error: &Error) -> Self {
        Self::of_io(format!("read {}", path.as_ref().display()), error)
    }

    /// An error of writing to `path`. Writing creates a missing file, so "not found" is about its
    /// directory.
    pub fn write(path: impl AsRef<Path>, error: &Error) -> Self {
        let path = path.as_ref();
        let cannot = Self::of_io(format!("write {}", path.display()), error);
        if error.kind() != ErrorKind::NotFound || error.get_ref().is_some() {
            return cannot;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let hint = folder.map(|folder| format!("mkdir -p {}", folder.display()));
        Self { why: "there is no such folder".into(), hint, ..cannot }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Whether it is a user error (exit status 2), such as a wrong file name. Otherwise the machine
    /// refused, because of a missing permission or a full disk (exit status 3).
    pub fn is_usage(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::AlreadyExists
                | ErrorKind::InvalidInput
                | ErrorKind::InvalidData
                | ErrorKind::InvalidFilename
                | ErrorKind::FileTooLarge
        )
    }
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.what, self.why)?;
        self.hint.iter().try_for_each(|hint| write!(f, "\n  try {hint}"))
    }
}

impl std::error::Error for Cannot {}

/// Error text of the system without its number, which does not help users. In lower case, because
/// it follows a colon.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    if error.get_ref().is_some() {
        return text;
    }
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        _ => {
            let text = text.split(" (os error").next().unwrap_or_default();
            let (first, rest) = text.split_at(text.len().min(1));
            first.to_lowercase() + rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_in_words() {
        let read = |number| Cannot::read("a.pcap", &Error::from_raw_os_error(number));
        assert_eq!(read(2).to_string(), "cannot read a.pcap: there is no such file");
        assert_eq!(read(13).to_string(), "cannot read a.pcap: permission denied");
        assert_eq!(read(21).to_string(), "cannot read a.pcap: is a directory");
        assert_eq!(
            [2, 13, 21, 28].map(|number| read(number).is_usage()),
            [true, false, true, false]
        );
        let own = Error::new(ErrorKind::InvalidData, "it is not UTF-8 text");
        assert_eq!(Cannot::read("b", &own).to_string(), "cannot read b: it is not UTF-8 text");
    }

    #[test]
    fn a_missing_folder_is_named_for_files_that_are_written() {
        let write = |path| Cannot::write(path, &Error::from_raw_os_error(2)).to_string();
        let missing = "cannot write out/a.pcap: there is no such folder\n  try mkdir -p out";
        assert_eq!(write("out/a.pcap"), missing);
        assert_eq!(write("a.pcap"), "cannot write a.pcap: there is no such folder");
    }
}
