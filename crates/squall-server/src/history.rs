//! What was run, and what came of it: SQLite in the data folder.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use rusqlite::{Connection, OptionalExtension, params};
use squall::{Error, report::Report};

use crate::{
    Refusal,
    runs::{RunRow, State},
};

/// Runs that are kept: the oldest go.
const KEPT: i64 = 5000;
/// Of the schema below; a later version has a step here that leads to it.
const VERSION: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE runs (
        n       INTEGER PRIMARY KEY AUTOINCREMENT,
        id      TEXT NOT NULL UNIQUE,
        kind    TEXT NOT NULL,
        state   TEXT NOT NULL,
        -- What is searched for: name, note, owner, ports, in lower case.
        words   TEXT NOT NULL,
        -- The run as requests are answered, JSON.
        row     TEXT NOT NULL,
        profile TEXT NOT NULL,
        format  TEXT NOT NULL,
        -- JSON, compressed by zstd.
        report  BLOB
    );
    CREATE INDEX runs_state ON runs (state);
    PRAGMA user_version = 1;
";

pub struct History {
    connection: Mutex<Connection>,
    /// What has become of runs, and could not be written: the disk was full. It is told all the same, and written later.
    unwritten: Mutex<Unwritten>,
}

/// Rows by id, and packed reports.
type Unwritten = BTreeMap<String, (RunRow, Option<Vec<u8>>)>;

/// Runs that wait to be written; each may have some hundred kilobytes.
const MOST_UNWRITTEN: usize = 256;

/// Which runs are asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub state: Option<String>,
    pub kind: Option<String>,
    pub words: Option<String>,
    pub before: Option<String>,
    pub limit: usize,
}

impl History {
    /// Opens the database; runs that a daemon left behind when it was killed are failed ones now.
    ///
    /// # Errors
    /// A file that is none, or of a later version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Environment(format!("{}: {error}", path.display()));
        let connection = Connection::open(path).map_err(|error| wrong(&error))?;
        let history = Self { connection: Mutex::new(connection), unwritten: Mutex::default() };
        history.prepare().map_err(|error| wrong(&error))?;
        Ok(history)
    }

    fn prepare(&self) -> Result<(), Box<dyn std::error::Error>> {
        let connection = self.lock();
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? {
            0 => connection.execute_batch(&format!("BEGIN; {SCHEMA} COMMIT;"))?,
            VERSION => {}
            later => {
                return Err(format!(
                    "is of version {later}, which a later Squall wrote\n  try that one, or another --data"
                )
                .into());
            }
        }
        let mut left = connection.prepare("SELECT row FROM runs WHERE state NOT IN ('done', 'failed')")?;
        let rows = left.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        drop(left);
        drop(connection);
        for text in rows {
            let mut row: RunRow = serde_json::from_str(&text)?;
            row.state = State::Failed;
            row.error = Some("the daemon ended".into());
            self.update(&row, None)?;
        }
        Ok(())
    }

    /// A run that begins.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn insert(&self, row: &RunRow, profile: &str, format: &str) -> Result<(), rusqlite::Error> {
        let connection = self.lock();
        connection.execute(
            "INSERT INTO runs (id, kind, state, words, row, profile, format) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![row.id, row.kind.word(), row.state.word(), words(row), json(row), profile, format],
        )?;
        let last = connection.last_insert_rowid();
        connection.execute("DELETE FROM runs WHERE n <= ?1 AND state IN ('done', 'failed')", params![last - KEPT])?;
        Ok(())
    }

    /// What has become of a run; its report, when it is over.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn update(&self, row: &RunRow, report: Option<&Report>) -> Result<(), rusqlite::Error> {
        let packed = report.and_then(|report| {
            let text = serde_json::to_vec(report).ok()?;
            zstd::bulk::compress(&text, 3).ok()
        });
        self.catch_up();
        let written = self.write(row, packed.as_deref());
        let mut unwritten = self.unwritten();
        match written {
            Ok(()) => _ = unwritten.remove(&row.id),
            // That of a run that goes on is written again when it ends.
            Err(_) if row.state.is_over() && unwritten.len() < MOST_UNWRITTEN => {
                let packed = packed.or_else(|| unwritten.remove(&row.id).and_then(|(_, packed)| packed));
                unwritten.insert(row.id.clone(), (row.clone(), packed));
            }
            Err(_) => {}
        }
        written
    }

    fn write(&self, row: &RunRow, packed: Option<&[u8]>) -> Result<(), rusqlite::Error> {
        self.lock().execute(
            "UPDATE runs SET state = ?2, words = ?3, row = ?4, report = coalesce(?5, report) WHERE id = ?1",
            params![row.id, row.state.word(), words(row), json(row), packed],
        )?;
        Ok(())
    }

    /// Writes what could not be written before.
    pub fn catch_up(&self) {
        self.unwritten().retain(|_, (row, packed)| self.write(row, packed.as_deref()).is_err());
    }

    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// A database that cannot be read.
    pub fn run(&self, id: &str) -> Result<Option<RunRow>, Refusal> {
        if let Some((row, _)) = self.unwritten().get(id) {
            return Ok(Some(row.clone()));
        }
        let found = self.lock().query_row("SELECT row FROM runs WHERE id = ?1", [id], |row| row.get::<_, String>(0));
        found.optional().map_err(unreadable)?.map(|text| parse(&text)).transpose()
    }

    /// The newest first.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn runs(&self, asked: &Asked) -> Result<Vec<RunRow>, Refusal> {
        let words = asked.words.as_ref().map(|words| {
            let plain = words.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            format!("%{plain}%")
        });
        let connection = self.lock();
        let mut statement = connection
            .prepare(
                "SELECT row FROM runs WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR kind = ?2)
                 AND (?3 IS NULL OR words LIKE ?3 ESCAPE '\\')
                 AND (?4 IS NULL OR n < (SELECT n FROM runs WHERE id = ?4)) ORDER BY n DESC LIMIT ?5",
            )
            .map_err(unreadable)?;
        let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
        let rows = statement
            .query_map(params![asked.state, asked.kind, words, asked.before, limit], |row| row.get::<_, String>(0))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unreadable)?;
        drop(statement);
        // In the order of `catch_up`: that one first.
        drop(connection);
        let unwritten = self.unwritten();
        let now = |row: RunRow| unwritten.get(&row.id).map_or_else(|| row.clone(), |(row, _)| row.clone());
        rows.iter().map(|text| parse(text).map(now)).collect()
    }

    /// The report's JSON; `None`: there is none, or no such run.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn report(&self, id: &str) -> Result<Option<String>, Refusal> {
        let found = self
            .lock()
            .query_row("SELECT report FROM runs WHERE id = ?1", [id], |row| row.get::<_, Option<Vec<u8>>>(0));
        let unwritten = self.unwritten().get(id).and_then(|(_, packed)| packed.clone());
        let Some(packed) = unwritten.or(found.optional().map_err(unreadable)?.flatten()) else { return Ok(None) };
        let text = zstd::stream::decode_all(packed.as_slice()).map_err(|error| Refusal::internal(error.to_string()))?;
        String::from_utf8(text).map(Some).map_err(|error| Refusal::internal(error.to_string()))
    }

    /// The profile as it was started, and its format.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn profile(&self, id: &str) -> Result<Option<(String, String)>, Refusal> {
        let found = self
            .lock()
            .query_row("SELECT profile, format FROM runs WHERE id = ?1", [id], |row| Ok((row.get(0)?, row.get(1)?)));
        found.optional().map_err(unreadable)
    }

    /// Whether it was there.
    ///
    /// # Errors
    /// A database that cannot be written.
    pub fn delete(&self, id: &str) -> Result<bool, Refusal> {
        self.lock().execute("DELETE FROM runs WHERE id = ?1", [id]).map(|count| count > 0).map_err(unreadable)
    }

    /// The highest number of a run's name that begins so: of `r-20261122-`, of that day.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn last_number(&self, prefix: &str) -> Result<u64, rusqlite::Error> {
        let sql =
            "SELECT max(CAST(substr(id, length(?1) + 1) AS INTEGER)) FROM runs WHERE substr(id, 1, length(?1)) = ?1";
        let found: Option<i64> = self.lock().query_row(sql, [prefix], |row| row.get(0))?;
        Ok(found.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn json(row: &RunRow) -> String {
    serde_json::to_string(row).expect("texts and numbers")
}

fn parse(text: &str) -> Result<RunRow, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal::internal(format!("the history is damaged: {error}")))
}

fn words(row: &RunRow) -> String {
    let ports = row.ports.iter().flat_map(|port| [&port.name, &port.address]);
    let words = [&row.id, &row.name, &row.note, &row.owner].into_iter().chain(ports);
    words.map(|word| word.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// A disk that is full or read-only is no defect.
pub fn unreadable(error: rusqlite::Error) -> Refusal {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    let message = format!("the history: {error}");
    match error.sqlite_error_code() {
        Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | SystemIoFailure) => Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "environment",
            message + "\n  try to make room in the data folder",
        ),
        _ => Refusal::internal(message),
    }
}
