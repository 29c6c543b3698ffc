//! Errors in a profile, in the form in which users see them.

use std::fmt;

/// An error: position, value found, expected values, hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic {
    /// File name, or `<python>`.
    pub origin: String,
    /// 1-based; 0 if there is no source text.
    pub line: u32,
    /// In characters, 1-based; 0 if `line` is 0.
    pub column: u32,
    /// The key, such as `stream[3].rate`. Empty for a syntax error.
    pub path: String,
    /// `stream "web": rate = "12 Gbp" is not a rate`.
    pub message: String,
    /// Known values and hints, one line each.
    pub details: Vec<String>,
}

/// Maximum number of errors to keep per profile. A file that is not a profile, or a generated one,
/// could have a million, which no user would read.
pub(crate) const MAX_ERRORS: usize = 200;

/// All errors in a profile, in the order of the text. After 200, further errors are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostic {
    /// An error that is found after parsing. The caller fills in the origin.
    pub fn at(at: crate::At, message: String, details: Vec<String>) -> Self {
        Self { line: at.line, column: at.column, message, details, ..Self::default() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        } else if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        // The message names a profile that cannot be read, so there is no position to print.
        let placed = !self.origin.is_empty() || self.line > 0 || !self.path.is_empty();
        write!(f, "{}{}", if placed { "  " } else { "" }, self.message)?;
        self.details.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            write!(f, "{}{diagnostic}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_reads_as_place_message_and_indented_details() {
        let mut diagnostic = Diagnostic {
            origin: "load.toml".into(),
            line: 14,
            column: 8,
            path: "stream[0].rate".into(),
            message: r#"stream "web": rate = "12 Gbp" is not a rate"#.into(),
            details: vec![r#"try "12 Gbps""#.into()],
        };
        assert_eq!(
            diagnostic.to_string(),
            "load.toml:14:8  stream \"web\": rate = \"12 Gbp\" is not a rate\n  try \"12 Gbps\""
        );
        diagnostic.line = 0;
        assert!(diagnostic.to_string().starts_with("load.toml: stream[0].rate  stream"));
    }
}
