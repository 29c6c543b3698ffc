//! Journal of completed trials, with a line of JSON for each, from which an interrupted test can
//! continue.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use squall_method::{Method, RecordedTrial, Rig};

use squall::Error;
use squall_units::Cannot;

/// First line, which identifies the test: only the same test can continue from a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    schema: String,
    method: Value,
    rig: Value,
    profile: String,
    /// Nodes and addresses of the ports, as text; empty if the test runs on this machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    nodes: String,
}

const SCHEMA: &str = "squall.journal/1";

impl Head {
    pub fn new(method: &Method, rig: &Rig, profile: &str, nodes: &str) -> Self {
        let value = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            schema: SCHEMA.into(),
            method: value(serde_json::to_value(method)),
            rig: value(serde_json::to_value(rig)),
            profile: profile.into(),
            nodes: nodes.into(),
        }
    }
}

pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal, and returns it with its trials.
    pub fn open(path: &Path, head: &Head) -> Result<(Self, Vec<RecordedTrial>), Error> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(|error| Cannot::write(path, &error))?;
        let mut known = Vec::new();
        let mut empty = true;
        let mut whole = true;
        for (i, line) in BufReader::new(&file).split(b'\n').enumerate() {
            let line = line.map_err(|error| Cannot::read(path, &error))?;
            empty = false;
            if i == 0 {
                let other = "it is the journal of another test\n  try another file, or remove it";
                let read: Option<Head> = serde_json::from_slice(&line).ok();
                if read.as_ref() != Some(head) {
                    return Err(wrong(other.into()));
                }
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(recorded) if whole => known.push(recorded),
                // An interrupted run may have truncated the last line, so the rest is ignored.
                _ => whole = false,
            }
        }
        let mut journal = Self { path: path.into(), file };
        if empty {
            journal.line(head)?;
        } else if !whole {
            journal.rewrite(head, &known)?;
        }
        Ok((journal, known))
    }

    pub fn add(&mut self, recorded: &RecordedTrial) -> Result<(), Error> {
        self.line(recorded)
    }

    fn rewrite(&mut self, head: &Head, known: &[RecordedTrial]) -> Result<(), Error> {
        self.file.set_len(0).map_err(|e| self.failed(&e))?;
        self.line(head)?;
        known.iter().try_for_each(|recorded| self.line(recorded))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_vec(value).map_err(|e| self.failed(&e.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Cannot::write(&self.path, error).into()
    }
}
