//! Texts that clients send in fragments.

use serde_json::Value;

use super::Refusal;
use crate::rpc::Params;

/// Maximum octets of a text.
const LARGEST: usize = 64 << 20;

/// Fragments received so far, and the hashes of whole texts as the client sent them.
#[derive(Debug, Default)]
pub struct Fragments {
    text: String,
    /// Hash of the text that is being received.
    next: Option<String>,
    /// Hash of the accepted text. A refused text has none, so that the client gets the error again.
    md5: Option<String>,
}

/// Result of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing more is needed: the text was accepted before, and is in use.
    Known,
    More,
    Whole(String),
}

impl Fragments {
    /// Adds the fragment of a request. `loaded`: whether the accepted text is in use.
    ///
    /// # Errors
    /// The text is too long.
    pub fn add(&mut self, params: &Params<'_>, loaded: bool) -> Result<Part, Refusal> {
        let fragment = params.text("fragment")?;
        if params.flag("frag_first") {
            let md5 = params.get("md5").and_then(Value::as_str);
            if loaded && md5.is_some() && md5 == self.md5.as_deref() {
                return Ok(Part::Known);
            }
            (self.text, self.next) = (String::new(), md5.map(str::to_owned));
        }
        if self.text.len() + fragment.len() > LARGEST {
            (self.text, self.next) = (String::new(), None);
            return Err(Refusal::parameters(format!("a text of more than {LARGEST} octets")));
        }
        self.text.push_str(fragment);
        Ok(match params.flag("frag_last") {
            true => Part::Whole(std::mem::take(&mut self.text)),
            false => Part::More,
        })
    }

    /// Remembers the hash of the whole text, which is in use from now on.
    pub fn accepted(&mut self) {
        self.md5 = self.next.take();
    }
}
