//! The history of runs and their results: SQLite in the data directory.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::StatusCode;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use squall::{
    Error,
    report::{EndedBy, VerdictStatus},
};
use squall_units::Cannot;

use crate::{
    Refusal,
    audit::AuditRow,
    runs::{RunRow, RunVerdict, State},
};

/// Number of runs to keep. The oldest are deleted, because the database would otherwise grow
/// without limit.
const MAX_RUNS: i64 = 5000;
/// Number of audit entries to keep. The oldest are deleted, because the database would otherwise
/// grow without limit.
const MAX_AUDIT: i64 = 50_000;
/// Number of audit entries to keep in memory while the disk is full.
const MAX_UNAUDITED: usize = 1000;
/// Number of run numbers to reserve at once. No number may be assigned twice, even if runs start
/// while the disk is full and the daemon is then killed; a kill skips at most this many numbers.
const RESERVED_NUMBERS: u64 = 16;
/// Version of the schema, which is the number of migration steps. An older database runs the steps
/// that it lacks.
const VERSION: i64 = STEPS.len() as i64;
const STEPS: [&str; 2] = [
    "
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
",
    "
    -- The highest number of a day that may have been given to a run: runs can be deleted, and \
     their names do not come again.
    CREATE TABLE numbers (
        day  TEXT PRIMARY KEY,
        last INTEGER NOT NULL
    );
    CREATE TABLE audit (
        n      INTEGER PRIMARY KEY AUTOINCREMENT,
        -- RFC 3339.
        t      TEXT NOT NULL,
        who    TEXT NOT NULL,
        source TEXT NOT NULL,
        action TEXT NOT NULL,
        status INTEGER,
        detail TEXT NOT NULL
    );
",
];

/// States of runs that are over, as an SQL list.
const OVER: &str = "('done', 'failed', 'interrupted')";

pub struct History {
    connection: Mutex<Connection>,
    /// Updates of runs that could not be written because the disk was full. Queries include them,
    /// and they are written later.
    unwritten: Mutex<Unwritten>,
    /// Audit entries that could not be written, oldest first.
    unaudited: Mutex<VecDeque<AuditRow>>,
}

/// Pending updates by run id.
type Unwritten = BTreeMap<String, Pending>;

/// The part of a run that the database lacks.
#[derive(Clone)]
struct Pending {
    row: RunRow,
    /// Profile and format, if the database lacks the whole run.
    new: Option<(String, String)>,
    report: Option<Packed>,
}

/// A report in its stored form: compressed JSON.
#[derive(Clone)]
pub struct Packed(Vec<u8>);

impl Packed {
    /// Returns `None` if the value cannot be serialized as JSON.
    pub fn of(report: &impl Serialize) -> Option<Self> {
        let text = serde_json::to_vec(report).ok()?;
        zstd::bulk::compress(&text, 3).ok().map(Self)
    }

    fn text(&self) -> Result<String, Refusal> {
        let text = zstd::stream::decode_all(self.0.as_slice())
            .map_err(|error| Refusal::internal(error.to_string()))?;
        String::from_utf8(text).map_err(|error| Refusal::internal(error.to_string()))
    }
}

/// Maximum number of updates to keep in memory. Bounded to tens of megabytes, because each may have
/// some hundred kilobytes.
const MAX_UNWRITTEN: usize = 256;

/// A query for runs.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub state: Option<String>,
    pub kind: Option<String>,
    pub words: Option<String>,
    pub verdict: Option<VerdictStatus>,
    pub passed: Option<bool>,
    /// Earliest start, as in [`RunRow::started`].
    pub from: Option<String>,
    /// Starts are before this time.
    pub until: Option<String>,
    pub before: Option<String>,
    pub limit: usize,
}

impl Asked {
    /// Whether the query selects a pending run that the database lacks.
    fn means(&self, pending: &Pending) -> bool {
        let row = &pending.row;
        pending.new.is_some()
            && self.state.as_ref().is_none_or(|state| state == row.state.word())
            && self.kind.as_ref().is_none_or(|kind| kind == row.kind.word())
            && self.words.as_ref().is_none_or(|asked| words(row).contains(&asked.to_lowercase()))
            && self.verdict.is_none_or(|verdict| {
                row.verdict.as_ref().is_some_and(|found| found.status == verdict)
            })
            && self.passed.is_none_or(|passed| row.passed == Some(passed))
            && self.from.as_ref().is_none_or(|from| row.started >= *from)
            && self.until.as_ref().is_none_or(|until| row.started < *until)
    }

    /// The verdict as in the rows, which are JSON.
    fn verdict_word(&self) -> Option<String> {
        let word = serde_json::to_value(self.verdict?).ok()?;
        word.as_str().map(str::to_owned)
    }
}

impl History {
    /// Opens the database. Runs that a killed daemon left unfinished are marked as interrupted.
    ///
    /// # Errors
    /// A file that is not a database, or one of a later version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |error: &dyn std::fmt::Display| {
            let cannot = Cannot::new(format!("open the history {}", path.display()), error);
            Error::Environment(cannot.to_string())
        };
        let connection = Connection::open(path).map_err(|error| wrong(&error))?;
        let history = Self {
            connection: Mutex::new(connection),
            unwritten: Mutex::default(),
            unaudited: Mutex::default(),
        };
        history.prepare().map_err(|error| wrong(&error))?;
        Ok(history)
    }

    fn prepare(&self) -> Result<(), Box<dyn std::error::Error>> {
        let connection = self.lock();
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // In WAL mode, NORMAL avoids a sync per commit. A power failure may lose the last commits,
        // but leaves the file consistent (sqlite.org/pragma.html).
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version =
            connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
        let Some(missing) = usize::try_from(version).ok().and_then(|version| STEPS.get(version..))
        else {
            return Err(format!(
                "has version {version}, which a newer Squall wrote\n  try that Squall, or another \
                 --data"
            )
            .into());
        };
        if !missing.is_empty() {
            // Done in one transaction, so that a crash cannot leave a schema between two versions.
            let steps = missing.concat();
            connection.execute_batch(&format!(
                "BEGIN; {steps} PRAGMA user_version = {VERSION}; COMMIT;"
            ))?;
        }
        let sql = format!("SELECT row, report IS NOT NULL FROM runs WHERE state NOT IN {OVER}");
        let mut left = connection.prepare(&sql)?;
        let rows =
            left.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)))?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        drop(left);
        drop(connection);
        for (text, has_report) in rows {
            let mut row: RunRow = serde_json::from_str(&text)?;
            row.state = State::Interrupted;
            row.error = Some(match has_report {
                true => "the daemon was killed, or the machine stopped: the report ends some \
                         seconds before that"
                    .into(),
                false => "the daemon was killed, or the machine stopped, before there was a report"
                    .into(),
            });
            if let Some(error) = row.error.as_ref().filter(|_| has_report) {
                row.verdict = Some(RunVerdict {
                    status: VerdictStatus::Interrupted,
                    valid: false,
                    ended_by: EndedBy::Killed,
                    reasons: vec![error.clone()],
                });
            }
            if let Some(test) = &mut row.test {
                test.over();
            }
            // The end is the last time at which the run was known to be alive, because a killed
            // daemon recorded no other.
            let started = humantime::parse_rfc3339(&row.started).ok();
            let ended =
                started.map(|at| at + Duration::from_secs_f64(row.elapsed_s.clamp(0.0, 1e9)));
            row.ended = ended.map(|at| humantime::format_rfc3339_millis(at).to_string());
            self.update(&row, None)?;
        }
        Ok(())
    }

    /// Inserts a new run. If the disk is full, keeps the run in memory and writes it later, because
    /// generating traffic does not need the disk.
    ///
    /// # Errors
    /// Errors of the database other than a full disk.
    pub fn insert(&self, row: &RunRow, profile: &str, format: &str) -> Result<(), rusqlite::Error> {
        match self.store(row, Some((profile.to_owned(), format.to_owned())), None) {
            Err(error) if has_no_room(&error) => Ok(()),
            stored => stored,
        }
    }

    /// Stores the state of a run, and its report when there is one.
    ///
    /// # Errors
    /// A full disk.
    pub fn update(&self, row: &RunRow, report: Option<Packed>) -> Result<(), rusqlite::Error> {
        self.store(row, None, report)
    }

    fn store(
        &self,
        row: &RunRow,
        new: Option<(String, String)>,
        report: Option<Packed>,
    ) -> Result<(), rusqlite::Error> {
        // Hold the lock until the row is written, otherwise an older pending row could overwrite a
        // newer one.
        let mut unwritten = self.unwritten();
        unwritten.retain(|id, pending| *id == row.id || self.write(pending).is_err());
        let (waiting, before) =
            unwritten.remove(&row.id).map_or((None, None), |old| (old.new, old.report));
        let pending = Pending { row: row.clone(), new: new.or(waiting), report: report.or(before) };
        let written = self.write(&pending);
        // The row of a live run need not be kept, because it is written again when the run ends.
        if written.is_err() && (row.state.is_over() || pending.new.is_some()) {
            if unwritten.len() >= MAX_UNWRITTEN {
                let oldest = unwritten
                    .iter()
                    .find(|(_, one)| one.row.state.is_over())
                    .map(|(id, _)| id.clone());
                _ = oldest.and_then(|id| unwritten.remove(&id));
            }
            unwritten.insert(row.id.clone(), pending);
        }
        written
    }

    fn write(&self, pending: &Pending) -> Result<(), rusqlite::Error> {
        let Pending { row, new, report } = pending;
        let report = report.as_ref().map(|packed| &packed.0);
        let connection = self.lock();
        match new {
            Some((profile, format)) => {
                connection.execute(
                    "INSERT INTO runs (id, kind, state, words, row, profile, format, report)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    params![
                        row.id,
                        row.kind.word(),
                        row.state.word(),
                        words(row),
                        json(row),
                        profile,
                        format,
                        report
                    ],
                )?;
                let last = connection.last_insert_rowid();
                let sql = format!("DELETE FROM runs WHERE n <= ?1 AND state IN {OVER}");
                connection.execute(&sql, params![last - MAX_RUNS])?;
            }
            None => {
                connection.execute(
                    "UPDATE runs SET state = ?2, words = ?3, row = ?4, report = coalesce(?5, \
                     report) WHERE id = ?1",
                    params![row.id, row.state.word(), words(row), json(row), report],
                )?;
            }
        }
        Ok(())
    }

    /// Writes the pending updates.
    pub fn catch_up(&self) {
        self.unwritten().retain(|_, pending| self.write(pending).is_err());
    }

    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// A database that cannot be read.
    pub fn run(&self, id: &str) -> Result<Option<RunRow>, Refusal> {
        if let Some(pending) = self.unwritten().get(id) {
            return Ok(Some(pending.row.clone()));
        }
        let found = self
            .lock()
            .query_row("SELECT row FROM runs WHERE id = ?1", [id], |row| row.get::<_, String>(0));
        found.optional().map_err(unreadable)?.map(|text| parse(&text)).transpose()
    }

    /// Runs that match the query, newest first.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn runs(&self, asked: &Asked) -> Result<Vec<RunRow>, Refusal> {
        let words = asked.words.as_ref().map(|words| {
            let plain =
                words.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            format!("%{plain}%")
        });
        let unwritten = self.unwritten();
        // A pending run that the database lacks is newer than all runs in the database.
        let is_new = |id: &&String| unwritten.get(*id).is_some_and(|pending| pending.new.is_some());
        let before = asked.before.as_ref().filter(|id| !is_new(id));
        let connection = self.lock();
        let mut statement = connection
            .prepare(
                "SELECT row FROM runs WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR kind = \
                 ?2)
                 AND (?3 IS NULL OR words LIKE ?3 ESCAPE '\\')
                 AND (?4 IS NULL OR n < (SELECT n FROM runs WHERE id = ?4))
                 AND (?6 IS NULL OR json_extract(row, '$.verdict.status') = ?6)
                 AND (?7 IS NULL OR json_extract(row, '$.passed') = ?7)
                 AND (?8 IS NULL OR json_extract(row, '$.started') >= ?8)
                 AND (?9 IS NULL OR json_extract(row, '$.started') < ?9)
                 ORDER BY n DESC LIMIT ?5",
            )
            .map_err(unreadable)?;
        let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
        let rows = statement
            .query_map(
                params![
                    asked.state,
                    asked.kind,
                    words,
                    before,
                    limit,
                    asked.verdict_word(),
                    asked.passed,
                    asked.from,
                    asked.until
                ],
                |row| row.get::<_, String>(0),
            )
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unreadable)?;
        drop(statement);
        drop(connection);
        let now = |row: RunRow| {
            unwritten.get(&row.id).map_or_else(|| row.clone(), |pending| pending.row.clone())
        };
        let written =
            rows.iter().map(|text| parse(text).map(now)).collect::<Result<Vec<_>, _>>()?;
        // The database lacks these runs because they started while the disk was full, so they are
        // the newest.
        let mut all: Vec<_> =
            unwritten.values().rev().filter(|pending| asked.means(pending)).cloned().collect();
        drop(unwritten);
        let from = match &asked.before {
            None => 0,
            Some(id) => {
                all.iter().position(|pending| pending.row.id == *id).map_or(all.len(), |at| at + 1)
            }
        };
        let newest = all.drain(from..).map(|pending| pending.row);
        Ok(newest.chain(written).take(asked.limit).collect())
    }

    /// The report as JSON; `None` if there is no report or no such run.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn report(&self, id: &str) -> Result<Option<String>, Refusal> {
        if let Some(packed) = self.unwritten().get(id).and_then(|pending| pending.report.clone()) {
            return packed.text().map(Some);
        }
        let found = self.lock().query_row("SELECT report FROM runs WHERE id = ?1", [id], |row| {
            row.get::<_, Option<Vec<u8>>>(0)
        });
        let packed = found.optional().map_err(unreadable)?.flatten();
        packed.map(|octets| Packed(octets).text()).transpose()
    }

    /// The profile with which the run was started, and its format.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn profile(&self, id: &str) -> Result<Option<(String, String)>, Refusal> {
        if let Some(new) = self.unwritten().get(id).and_then(|pending| pending.new.clone()) {
            return Ok(Some(new));
        }
        let found =
            self.lock().query_row("SELECT profile, format FROM runs WHERE id = ?1", [id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            });
        found.optional().map_err(unreadable)
    }

    /// Deletes a run. Returns whether it existed.
    ///
    /// # Errors
    /// A database that cannot be written.
    pub fn delete(&self, id: &str) -> Result<bool, Refusal> {
        let waited = self.unwritten().remove(id).is_some_and(|pending| pending.new.is_some());
        let deleted =
            self.lock().execute("DELETE FROM runs WHERE id = ?1", [id]).map_err(unreadable)?;
        Ok(waited || deleted > 0)
    }

    /// The highest number that a run of `day` (such as `20261122`) may have.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn last_number(&self, day: &str) -> Result<u64, rusqlite::Error> {
        let sql = "SELECT max(CAST(substr(id, 12) AS INTEGER)) FROM runs WHERE substr(id, 1, 11) \
                   = 'r-' || ?1 || '-'";
        let connection = self.lock();
        let of_runs: Option<i64> = connection.query_row(sql, [day], |row| row.get(0))?;
        let given = connection
            .query_row("SELECT last FROM numbers WHERE day = ?1", [day], |row| row.get(0));
        let last = of_runs.max(given.optional()?);
        Ok(last.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
    }

    /// Reserves `number` and the [`RESERVED_NUMBERS`] - 1 numbers after it, so that they are not
    /// assigned again if the daemon is killed. Returns the last reserved number; `None` if the disk
    /// is full.
    pub fn reserve(&self, day: &str, number: u64) -> Option<u64> {
        let upto = number + RESERVED_NUMBERS - 1;
        self.reserved(day, upto).then_some(upto)
    }

    /// Records `last` as the last number of that day when the daemon ends, so that a clean shutdown
    /// leaves no gap.
    pub fn reserved(&self, day: &str, last: u64) -> bool {
        let sql = "INSERT INTO numbers VALUES (?1, ?2) ON CONFLICT (day) DO UPDATE SET last = \
                   excluded.last";
        i64::try_from(last).is_ok_and(|last| self.lock().execute(sql, params![day, last]).is_ok())
    }

    /// Adds an entry; the database assigns its number.
    pub fn add_audit(&self, row: AuditRow) {
        let mut waiting = self.unaudited.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(row);
        // Write the oldest first, because the database numbers entries in the order of insertion.
        while let Some(row) = waiting.front() {
            if self.write_audit(row).is_err() {
                break;
            }
            waiting.pop_front();
        }
        if waiting.len() > MAX_UNAUDITED {
            waiting.pop_front();
        }
    }

    fn write_audit(&self, row: &AuditRow) -> Result<(), rusqlite::Error> {
        let connection = self.lock();
        connection.execute(
            "INSERT INTO audit (t, who, source, action, status, detail) VALUES (?1, ?2, ?3, ?4, \
             ?5, ?6)",
            params![row.t, row.who, row.source, row.action, row.status, row.detail],
        )?;
        let last = connection.last_insert_rowid();
        connection.execute("DELETE FROM audit WHERE n <= ?1", [last - MAX_AUDIT])?;
        Ok(())
    }

    /// Entries of the audit, newest first.
    ///
    /// # Errors
    /// A database that cannot be read.
    pub fn audit(&self, limit: usize, before: Option<i64>) -> Result<Vec<AuditRow>, Refusal> {
        let sql = "SELECT n, t, who, source, action, status, detail FROM audit WHERE n < ?1 ORDER \
                   BY n DESC LIMIT ?2";
        let row = |row: &rusqlite::Row<'_>| {
            Ok(AuditRow {
                n: row.get(0)?,
                t: row.get(1)?,
                who: row.get(2)?,
                source: row.get(3)?,
                action: row.get(4)?,
                status: row.get(5)?,
                detail: row.get(6)?,
            })
        };
        let connection = self.lock();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = connection.prepare(sql).map_err(unreadable)?;
        let rows = statement
            .query_map(params![before.unwrap_or(i64::MAX), limit], row)
            .and_then(Iterator::collect);
        rows.map_err(unreadable)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn json(row: &RunRow) -> String {
    serde_json::to_string(row).expect("texts and numbers")
}

fn parse(text: &str) -> Result<RunRow, Refusal> {
    serde_json::from_str(text)
        .map_err(|error| Refusal::internal(format!("the history is damaged: {error}")))
}

fn words(row: &RunRow) -> String {
    let ports = row.ports.iter().flat_map(|port| [&port.name, &port.address]);
    let words = [&row.id, &row.name, &row.note, &row.owner].into_iter().chain(ports);
    words.map(|word| word.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// Whether the error is a full or read-only disk, which is not a bug in Squall.
fn has_no_room(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | SystemIoFailure)
    )
}

pub fn unreadable(error: rusqlite::Error) -> Refusal {
    let message = format!("the history: {error}");
    match has_no_room(&error) {
        true => Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "environment",
            message + "\n  try to free space in the data folder",
        ),
        false => Refusal::internal(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::Kind;

    fn row(id: &str) -> RunRow {
        RunRow {
            id: id.into(),
            name: "a run".into(),
            note: String::new(),
            kind: Kind::Streams,
            parts: Vec::new(),
            state: State::Running,
            verdict: None,
            passed: None,
            error: None,
            owner: "alice".into(),
            lease: None,
            started: "2026-11-22T10:00:00.000Z".into(),
            ended: None,
            elapsed_s: 2.5,
            duration_s: None,
            ports: Vec::new(),
            streams: 1,
            mult: Some(1.0),
            sent_all: false,
            test: None,
            cluster: None,
        }
    }

    fn opened(name: &str) -> (std::path::PathBuf, History) {
        let path = std::env::temp_dir()
            .join(format!("squall-history-{name}-{}.sqlite", std::process::id()));
        for end in ["", "-wal", "-shm"] {
            _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
        let history = History::open(&path).expect("it opens");
        (path, history)
    }

    /// Limits the number of pages, which SQLite reports like a full disk.
    fn pages(history: &History, most: i64) {
        let connection = history.lock();
        connection
            .pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))
            .expect("a limit");
    }

    #[test]
    fn a_full_disk_refuses_no_run_and_what_it_did_not_take_is_written_later() {
        let (path, history) = opened("full");
        history.insert(&row("r-20261122-0001"), "first", "toml").expect("there is room");
        pages(&history, 1);
        let long = "x".repeat(100_000);
        for id in ["r-20261122-0002", "r-20261122-0003"] {
            history.insert(&row(id), &long, "toml").expect("a run needs no disk");
        }
        let over = RunRow { state: State::Done, ..row("r-20261122-0002") };
        history
            .update(&over, Some(Packed(zstd::bulk::compress(b"{}", 3).expect("packed"))))
            .expect_err("it is full");
        let all = |state: Option<&str>| {
            let asked = Asked { state: state.map(str::to_owned), limit: 10, ..Asked::default() };
            history
                .runs(&asked)
                .expect("it can be read")
                .into_iter()
                .map(|row| row.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(all(None), ["r-20261122-0003", "r-20261122-0002", "r-20261122-0001"]);
        assert_eq!(all(Some("done")), ["r-20261122-0002"]);
        let known = || {
            let row = history.run("r-20261122-0002").expect("readable").expect("there");
            let profile =
                history.profile("r-20261122-0002").expect("readable").expect("there").0.len();
            (row.state, history.report("r-20261122-0002").expect("readable"), profile)
        };
        assert_eq!(known(), (State::Done, Some("{}".into()), 100_000));
        let asked = Asked { before: Some("r-20261122-0003".into()), limit: 10, ..Asked::default() };
        assert_eq!(history.runs(&asked).expect("readable").len(), 2);
        pages(&history, 1_000_000);
        history.catch_up();
        assert!(history.unwritten().is_empty());
        assert_eq!(known(), (State::Done, Some("{}".into()), 100_000));
        assert_eq!(all(Some("done")), ["r-20261122-0002"]);
        drop(history);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn runs_are_found_by_verdict_and_by_date() {
        let (path, history) = opened("found");
        let over = |id: &str, day: u32, status, passed| RunRow {
            state: State::Done,
            started: format!("2026-11-{day}T10:00:00.000Z"),
            verdict: Some(RunVerdict {
                status,
                valid: status == VerdictStatus::Valid,
                ended_by: EndedBy::default(),
                reasons: Vec::new(),
            }),
            passed,
            ..row(id)
        };
        let runs = [
            over("r-20261121-0001", 21, VerdictStatus::Valid, Some(true)),
            over("r-20261122-0001", 22, VerdictStatus::NotValid, None),
            over("r-20261123-0001", 23, VerdictStatus::Interrupted, Some(false)),
        ];
        for row in &runs {
            history.insert(row, "text", "toml").expect("there is room");
        }
        // A run that the disk had no room for is found by the same rules.
        pages(&history, 1);
        let last = over("r-20261124-0001", 24, VerdictStatus::Valid, None);
        history.insert(&last, &"x".repeat(100_000), "toml").expect("a run needs no disk");
        let days = |asked: Asked| {
            let found = history.runs(&Asked { limit: 10, ..asked }).expect("it can be read");
            found.into_iter().map(|row| row.id[8..10].to_owned()).collect::<Vec<_>>()
        };
        let by = |verdict| days(Asked { verdict: Some(verdict), ..Asked::default() });
        assert_eq!(by(VerdictStatus::Valid), ["24", "21"]);
        assert_eq!(by(VerdictStatus::NotValid), ["22"]);
        assert_eq!(by(VerdictStatus::Interrupted), ["23"]);
        let failed = Asked { passed: Some(false), ..Asked::default() };
        assert_eq!(days(failed), ["23"]);
        let day = |day: u32| Some(format!("2026-11-{day}T00:00:00.000Z"));
        let two = Asked { from: day(22), until: day(24), ..Asked::default() };
        assert_eq!(days(two), ["23", "22"]);
        let newest = Asked { from: day(24), ..Asked::default() };
        assert_eq!(days(newest), ["24"]);
        drop(history);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_history_of_the_first_version_is_taken_over_with_its_runs() {
        let (path, history) = opened("old");
        history.insert(&row("r-20261122-0007"), "text", "toml").expect("there is room");
        let since = "DROP TABLE numbers; DROP TABLE audit; PRAGMA user_version = 1;";
        history.lock().execute_batch(since).expect("as it was");
        drop(history);
        let history = History::open(&path).expect("it opens");
        let left = history.run("r-20261122-0007").expect("readable").expect("there");
        assert_eq!(
            (left.state, left.ended.as_deref()),
            (State::Interrupted, Some("2026-11-22T10:00:02.500Z"))
        );
        assert_eq!(history.last_number("20261122").expect("readable"), 7);
        drop(history);
        let later = Connection::open(&path)
            .and_then(|c| c.pragma_update(None, "user_version", VERSION + 1));
        later.expect("written");
        assert!(
            History::open(&path).err().expect("refused").to_string().contains("a newer Squall")
        );
        std::fs::remove_file(path).expect("removed");
    }
}
