//! NFS 3 (RFC 1813) over ONC RPC (RFC 5531).

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Program and procedures of NFS 3 (RFC 1813 §3).
const PROGRAM: u32 = 100_003;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
// The server chooses the file handle. It is opaque for the client.
const HANDLE: [u8; 32] = [0x4e; 32];

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let version = number(
        parts,
        |test| match test {
            ApplicationTest::NfsVersion(numbers) => Some(numbers),
            _ => None,
        },
        &[3, 2, 4],
        4,
    )?;
    let procedure = number(
        parts,
        |test| match test {
            ApplicationTest::NfsProcedure(numbers) => Some(numbers),
            _ => None,
        },
        &[],
        21,
    )?;
    let either = |buffer| parts.get(buffer, End::Client).or_else(|| parts.get(buffer, End::Server));
    let data = |from| parts.get(Buffer::FileData, from).cloned().or_else(|| payload(parts, from));
    let name = either(Buffer::FileName).cloned().unwrap_or_else(|| "report.txt".into());
    let mut calls = Calls {
        turns: vec![],
        version: version.unwrap_or(3) as u32,
        calls: 0,
        over_tcp: parts.style.over_tcp,
    };
    let (written, read) = (data(End::Client), data(End::Server));
    calls.both(LOOKUP, of_name(&name)?, looked_up())?;
    if let Some(written) = &written {
        calls.write(written)?;
    }
    if let Some(read) = &read {
        calls.read(read)?;
    }
    match procedure.map(|procedure| procedure as u32) {
        None | Some(LOOKUP) => {}
        Some(READ) => {
            if read.is_none() {
                calls.read(&"text".into())?;
            }
        }
        Some(WRITE) => {
            if written.is_none() {
                calls.write(&"text".into())?;
            }
        }
        // NULL has no arguments. Procedures that take a name get the directory and the name; all
        // others get at least a handle.
        Some(0) => calls.both(0, Fields::new(), Fields::new())?,
        Some(procedure @ (8..=13)) => calls.both(procedure, of_name(&name)?.zeros(24), failed())?,
        Some(procedure) => calls.both(procedure, handle().zeros(24), failed())?,
    }
    Ok(calls.turns)
}

struct Calls {
    turns: Vec<Turn>,
    version: u32,
    calls: u32,
    over_tcp: bool,
}

impl Calls {
    fn both(
        &mut self,
        procedure: u32,
        arguments: Fields,
        results: Fields,
    ) -> Result<(), Impossible> {
        self.calls += 1;
        let call = Fields::new()
            .be32(0x5100_0000 + self.calls)
            .be32(0)
            .be32(2)
            .be32(PROGRAM)
            .be32(self.version)
            .be32(procedure)
            // AUTH_UNIX: stamp, host, user, group.
            .be32(1)
            .be32(28)
            .be32(0x51)
            .be32(6)
            .raw(b"client\0\0")
            .zeros(12)
            .be32(0)
            .be32(0)
            .fields(arguments);
        let reply = Fields::new()
            .be32(0x5100_0000 + self.calls)
            .be32(1)
            .be32(0)
            .be32(0)
            .be32(0)
            .be32(0)
            .fields(results);
        for (from, message) in [(End::Client, call), (End::Server, reply)] {
            let length = fits(message.len(), 1 << 20)? as u32;
            // This bit marks the last fragment of a record.
            let octets = if self.over_tcp {
                Fields::new().be32(0x8000_0000 | length).fields(message)
            } else {
                message
            };
            self.turns.push(Turn::new(from, octets.done()));
        }
        Ok(())
    }

    fn write(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 60_000)? as u32;
        let call = handle().zeros(8).be32(length).be32(2).be32(length).part(data).align(4);
        self.both(WRITE, call, Fields::new().be32(0).be32(0).be32(0).be32(length).be32(2).zeros(8))
    }

    fn read(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 60_000)? as u32;
        let results =
            Fields::new().be32(0).be32(0).be32(length).be32(1).be32(length).part(data).align(4);
        self.both(READ, handle().zeros(8).be32(length), results)
    }
}

fn handle() -> Fields {
    Fields::new().be32(32).raw(&HANDLE)
}

fn of_name(name: &Octets) -> Result<Fields, Impossible> {
    let length = fits(name.len(), 255)? as u32;
    Ok(handle().be32(length).part(name).align(4))
}

/// A reply with a handle, but without attributes.
fn looked_up() -> Fields {
    Fields::new().be32(0).fields(handle()).be32(0).be32(0)
}

/// A reply with the status NFS3ERR_ACCES.
fn failed() -> Fields {
    Fields::new().be32(13).be32(0).be32(0)
}
