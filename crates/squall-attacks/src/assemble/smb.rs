//! SMB 2 (MS-SMB2) and SMB 1 (MS-CIFS, MS-SMB) over TCP: a session, a share, and a pipe or file on
//! it.

use squall_rules::{ApplicationTest, Buffer, End};

use super::dce::Call;
use super::der::{node, oid, plain};
use super::fields::{Fields, fits, number, part_or, payload, wide};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let version = number(
        parts,
        |test| match test {
            ApplicationTest::SmbVersion(numbers) => Some(numbers),
            _ => None,
        },
        &[2],
        2,
    )?;
    let wanted = Wanted::of(parts)?;
    let mut session = Session { turns: Vec::new(), messages: 0, old: version == Some(1) };
    session.begin(&wanted)?;
    match &wanted.work {
        Work::Call(call) => session.call(&wanted.name, call)?,
        Work::File { written, read } => {
            session.file(&wanted.name, written.as_ref(), read.as_ref())?
        }
    }
    for from in [End::Client, End::Server] {
        // Send a payload that is a complete message unchanged.
        if let Some(payload) = payload(parts, from).filter(is_message) {
            session.turns.push(Turn::new(from, payload));
        }
    }
    Ok(session.turns)
}

struct Wanted {
    user: Octets,
    domain: Octets,
    /// `\\server\share`
    share: Octets,
    name: Octets,
    work: Work,
}

enum Work {
    Call(Call),
    File { written: Option<Octets>, read: Option<Octets> },
}

impl Wanted {
    fn of(parts: &Parts) -> Result<Self, Impossible> {
        let client =
            |buffer| parts.get(buffer, End::Client).or_else(|| parts.get(buffer, End::Server));
        let pipe = client(Buffer::SmbNamedPipe);
        let share = client(Buffer::SmbShare);
        if pipe.is_some() && share.is_some() {
            return Err(Impossible("a conversation uses one tree: a pipe or a disk".into()));
        }
        let calls = parts.tests.iter().any(|test| {
            matches!(test, ApplicationTest::DceInterface { .. } | ApplicationTest::DceOpnum(_))
        });
        let stub = parts.buffers.iter().any(|part| part.0 == Buffer::DceStubData);
        let file = |from| {
            let loose =
                payload(parts, from).filter(|octets| !is_message(octets) && !calls && !stub);
            parts.get(Buffer::FileData, from).cloned().or(loose)
        };
        let (written, read) = (file(End::Client), file(End::Server));
        let is_file = written.is_some()
            || read.is_some()
            || share.is_some()
            || client(Buffer::FileName).is_some();
        if is_file && (calls || stub || pipe.is_some()) {
            return Err(Impossible("calls need a pipe, files need a disk".into()));
        }
        let is_pipe = !is_file;
        let usual = if is_pipe { "\\\\SERVER\\IPC$" } else { "\\\\SERVER\\data" };
        let name = client(Buffer::FileName).cloned();
        Ok(Wanted {
            user: part_or(parts, Buffer::SmbNtlmUser, End::Client, "user"),
            domain: part_or(parts, Buffer::SmbNtlmDomain, End::Client, "WORKGROUP"),
            share: pipe.or(share).cloned().unwrap_or_else(|| usual.into()),
            name: name
                .unwrap_or_else(|| if is_pipe { "svcctl".into() } else { "report.txt".into() }),
            work: if is_pipe { Work::Call(Call::of(parts)?) } else { Work::File { written, read } },
        })
    }

    fn is_pipe(&self) -> bool {
        matches!(self.work, Work::Call(_))
    }
}

/// Whether it is an SMB message with a NetBIOS header.
fn is_message(octets: &Octets) -> bool {
    let bytes = octets.bytes();
    bytes.len() >= 8 && bytes[0] == 0 && matches!(bytes[4], 0xfe | 0xff) && &bytes[5..8] == b"SMB"
}

// Commands of SMB 2 (MS-SMB2 §2.2.1).
const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const IOCTL: u16 = 11;
// STATUS_MORE_PROCESSING_REQUIRED, the server's answer to the first token of NTLM.
const MORE_PROCESSING: u32 = 0xc000_0016;
// FSCTL_PIPE_TRANSCEIVE (MS-FSCC §2.3).
const TRANSCEIVE: u32 = 0x0011_c017;
// The server chooses the file ID. It is opaque for the client.
const FILE: [u8; 16] = [1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0x51, 0, 0, 0];

struct Session {
    turns: Vec<Turn>,
    /// Number of requests sent.
    messages: u64,
    /// Use SMB 1 instead of SMB 2.
    old: bool,
}

impl Session {
    /// Sends a request and its response.
    fn both(
        &mut self,
        command: u16,
        request: Fields,
        status: u32,
        response: Fields,
    ) -> Result<(), Impossible> {
        for (from, body, status) in [(End::Client, request, 0), (End::Server, response, status)] {
            let session = if self.messages < 2 && from == End::Client || self.messages == 0 {
                0
            } else {
                0x53_0001
            };
            let tree =
                if self.messages < 3 || self.messages == 3 && from == End::Client { 0 } else { 5 };
            let header = Fields::of(b"\xfeSMB")
                .le16(64)
                .le16(u16::from(self.messages > 0))
                .le32(status)
                .le16(command)
                .le16(31)
                .le32(u32::from(from == End::Server))
                .le32(0)
                .le64(self.messages)
                .le32(0xfeff)
                .le32(tree)
                .le64(session)
                .zeros(16);
            self.send(from, header.fields(body))?;
        }
        self.messages += 1;
        Ok(())
    }

    fn send(&mut self, from: End, message: Fields) -> Result<(), Impossible> {
        let length = fits(message.len(), 0x1_ffff)? as u32;
        self.turns.push(Turn::new(from, Fields::new().be32(length).fields(message).done()));
        Ok(())
    }

    /// Opens the session and connects to the share.
    fn begin(&mut self, wanted: &Wanted) -> Result<(), Impossible> {
        if self.old {
            return self.begin_old(wanted);
        }
        let request = Fields::new()
            .le16(36)
            .le16(3)
            .le16(1)
            .le16(0)
            .le32(0x7f)
            .raw(&[0x51; 16])
            .zeros(8)
            .le16(0x0202)
            .le16(0x0210)
            .le16(0x0300);
        let response = Fields::new()
            .le16(65)
            .le16(1)
            .le16(0x0300)
            .le16(0)
            .raw(&[0x53; 16])
            .le32(7)
            .le32(1 << 20)
            .le32(1 << 20)
            .le32(1 << 20)
            .le64(0x01d8_0000_0000_0000)
            .le64(0)
            .le16(128)
            .le16(0)
            .le32(0);
        self.both(NEGOTIATE, request, 0, response)?;
        let setup = |token: &Octets| -> Result<Fields, Impossible> {
            let length = fits(token.len(), 60_000)? as u16;
            let fixed = Fields::new()
                .le16(25)
                .byte(0)
                .byte(1)
                .le32(1)
                .le32(0)
                .le16(88)
                .le16(length)
                .le64(0);
            Ok(fixed.part(token))
        };
        let answer = |token: &Octets| {
            Fields::new().le16(9).le16(0).le16(72).le16(token.len() as u16).part(token)
        };
        let (offer, challenge, proof) = tokens(wanted)?;
        self.both(SESSION_SETUP, setup(&offer)?, MORE_PROCESSING, answer(&challenge))?;
        self.both(SESSION_SETUP, setup(&proof)?, 0, answer(&accepted()))?;
        let path = wide(&wanted.share);
        let length = fits(path.len(), 60_000)? as u16;
        let request = Fields::new().le16(9).le16(0).le16(72).le16(length).part(&path);
        let kind = if wanted.is_pipe() { 2 } else { 1 };
        let response =
            Fields::new().le16(16).byte(kind).byte(0).le32(0x30).le32(0).le32(0x001f_01ff);
        self.both(TREE_CONNECT, request, 0, response)
    }

    fn create(&mut self, name: &Octets, size: u64) -> Result<(), Impossible> {
        let name = wide(name);
        let length = fits(name.len(), 60_000)? as u16;
        let request = Fields::new()
            .le16(57)
            .byte(0)
            .byte(0)
            .le32(2)
            .le64(0)
            .le64(0)
            .le32(0x0012_019f)
            .le32(0x80)
            .le32(3)
            .le32(3)
            .le32(0x40)
            .le16(120)
            .le16(length)
            .le32(0)
            .le32(0)
            .part(&name);
        let time = 0x01d8_0000_0000_0000;
        let response = Fields::new()
            .le16(89)
            .byte(0)
            .byte(0)
            .le32(1)
            .le64(time)
            .le64(time)
            .le64(time)
            .le64(time)
            .le64(size.next_multiple_of(4096))
            .le64(size)
            .le32(0x80)
            .le32(0)
            .raw(&FILE)
            .le32(0)
            .le32(0);
        self.both(CREATE, request, 0, response)
    }

    fn write(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 100_000)? as u32;
        let request = Fields::new()
            .le16(49)
            .le16(112)
            .le32(length)
            .le64(0)
            .raw(&FILE)
            .le32(0)
            .le32(0)
            .le16(0)
            .le16(0)
            .le32(0)
            .part(data);
        let response = Fields::new().le16(17).le16(0).le32(length).le32(0).le16(0).le16(0);
        self.both(WRITE, request, 0, response)
    }

    fn read(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 100_000)? as u32;
        let request = Fields::new()
            .le16(49)
            .byte(80)
            .byte(0)
            .le32(length.max(1024))
            .le64(0)
            .raw(&FILE)
            .le32(0)
            .le32(0)
            .le32(0)
            .le16(0)
            .le16(0)
            .byte(0);
        let response =
            Fields::new().le16(17).byte(80).byte(0).le32(length).le32(0).le32(0).part(data);
        self.both(READ, request, 0, response)
    }

    fn close(&mut self) -> Result<(), Impossible> {
        let request = Fields::new().le16(24).le16(0).le32(0).raw(&FILE);
        self.both(CLOSE, request, 0, Fields::new().le16(60).zeros(58))
    }

    /// Binds to an interface through the pipe and calls it.
    fn call(&mut self, pipe: &Octets, call: &Call) -> Result<(), Impossible> {
        if self.old {
            self.open_old(pipe)?;
            self.transact_old(&call.bind(), &call.bind_ack())?;
            return self.transact_old(&call.request()?, &call.response()?);
        }
        self.create(pipe, 0)?;
        self.write(&call.bind())?;
        self.read(&call.bind_ack())?;
        let (input, output) = (call.request()?, call.response()?);
        let request = Fields::new()
            .le16(57)
            .le16(0)
            .le32(TRANSCEIVE)
            .raw(&FILE)
            .le32(120)
            .le32(input.len() as u32)
            .le32(0)
            .le32(0)
            .le32(0)
            .le32(65_536)
            .le32(1)
            .le32(0)
            .part(&input);
        let response = Fields::new()
            .le16(49)
            .le16(0)
            .le32(TRANSCEIVE)
            .raw(&FILE)
            .le32(112)
            .le32(0)
            .le32(112)
            .le32(output.len() as u32)
            .le32(0)
            .le32(0)
            .part(&output);
        self.both(IOCTL, request, 0, response)?;
        self.close()
    }

    fn file(
        &mut self,
        name: &Octets,
        written: Option<&Octets>,
        read: Option<&Octets>,
    ) -> Result<(), Impossible> {
        if self.old {
            self.open_old(name)?;
            if let Some(data) = written {
                self.write_old(data)?;
            }
            return read.map_or(Ok(()), |data| self.read_old(data));
        }
        self.create(name, read.map_or(0, Octets::len) as u64)?;
        if let Some(data) = written {
            self.write(data)?;
        }
        if let Some(data) = read {
            self.read(data)?;
        }
        self.close()
    }

    /// An SMB 1 request and its response: parameters (a multiple of two octets) and data.
    fn both_old(
        &mut self,
        command: u8,
        request: (Fields, Fields),
        status: u32,
        response: (Fields, Fields),
    ) -> Result<(), Impossible> {
        for (from, (words, data), status) in
            [(End::Client, request, 0), (End::Server, response, status)]
        {
            let header = Fields::of(b"\xffSMB")
                .byte(command)
                .le32(status)
                .byte(if from == End::Server { 0x98 } else { 0x18 })
                .le16(0xc807)
                .zeros(12)
                .le16(if self.messages < 3 { 0 } else { 0x0800 })
                .le16(0xfeff)
                .le16(if self.messages < 1 { 0 } else { 0x0801 })
                .le16(self.messages as u16);
            let length = fits(data.len(), u16::MAX.into())? as u16;
            let message =
                header.byte((words.len() / 2) as u8).fields(words).le16(length).fields(data);
            self.send(from, message)?;
        }
        self.messages += 1;
        Ok(())
    }

    fn begin_old(&mut self, wanted: &Wanted) -> Result<(), Impossible> {
        let response = Fields::new()
            .le16(0)
            .byte(3)
            .le16(50)
            .le16(1)
            .le32(0x1_0000)
            .le32(0x1_0000)
            .le32(0)
            .le32(0x8000_e3fd)
            .le64(0x01d8_0000_0000_0000)
            .le16(0)
            .byte(0);
        let dialects = Fields::of(b"\x02NT LM 0.12\0");
        self.both_old(0x72, (Fields::new(), dialects), 0, (response, Fields::of(&[0x53; 16])))?;
        let setup = |token: &Octets| -> Result<(Fields, Fields), Impossible> {
            let length = fits(token.len(), 60_000)? as u16;
            let words = Fields::of(&[0xff, 0, 0, 0])
                .le16(61_440)
                .le16(2)
                .le16(1)
                .le32(0)
                .le16(length)
                .le32(0)
                .le32(0x8000_00d4);
            // The strings after the token are UTF-16, so align them to an even offset from the
            // header. 59 octets precede the token.
            let pad = (59 + token.len()) % 2;
            Ok((words, Fields::new().part(token).zeros(pad).raw(b"U\0n\0i\0x\0\0\0S\0\0\0")))
        };
        let answer = |token: &Octets| {
            let words = Fields::of(&[0xff, 0, 0, 0]).le16(0).le16(token.len() as u16);
            let pad = (43 + token.len()) % 2;
            (words, Fields::new().part(token).zeros(pad).raw(b"U\0n\0i\0x\0\0\0S\0\0\0"))
        };
        let (offer, challenge, proof) = tokens(wanted)?;
        self.both_old(0x73, setup(&offer)?, MORE_PROCESSING, answer(&challenge))?;
        self.both_old(0x73, setup(&proof)?, 0, answer(&accepted()))?;
        let words = Fields::of(&[0xff, 0, 0, 0]).le16(0).le16(1);
        let service: &[u8] = if wanted.is_pipe() { b"IPC\0" } else { b"A:\0" };
        // A password of one octet makes the offset of the path even.
        let request = Fields::of(&[0]).part(&wide(&wanted.share)).zeros(2).raw(b"?????\0");
        let response = Fields::of(&[0xff, 0, 0, 0]).le16(1);
        self.both_old(0x75, (words, request), 0, (response, Fields::of(service).raw(&[0, 0])))
    }

    fn open_old(&mut self, name: &Octets) -> Result<(), Impossible> {
        let name = wide(name);
        let length = fits(name.len(), 60_000)? as u16;
        let words = Fields::of(&[0xff, 0, 0, 0, 0])
            .le16(length)
            .le32(0)
            .le32(0)
            .le32(0x0002_019f)
            .le64(0)
            .le32(0)
            .le32(3)
            .le32(1)
            .le32(0)
            .le32(2)
            .byte(0);
        let answer = Fields::of(&[0xff, 0, 0, 0, 0])
            .le16(0x4000)
            .le32(1)
            .zeros(32)
            .le32(0x80)
            .le64(4096)
            .le64(0)
            .le16(2)
            .le16(0)
            .byte(0);
        self.both_old(
            0xa2,
            (words, Fields::new().byte(0).part(&name).zeros(2)),
            0,
            (answer, Fields::new()),
        )
    }

    /// A transaction with TransactNmPipe.
    fn transact_old(&mut self, input: &Octets, output: &Octets) -> Result<(), Impossible> {
        let sent = fits(input.len(), 60_000)? as u16;
        let got = fits(output.len(), 60_000)? as u16;
        // 16 words: the name follows after 32 + 1 + 32 + 2 octets and one octet of padding; the
        // data is at offset 84.
        let words = Fields::new()
            .le16(0)
            .le16(sent)
            .le16(0)
            .le16(4280)
            .raw(&[0, 0])
            .le16(0)
            .le32(0)
            .le16(0)
            .le16(0)
            .le16(84)
            .le16(sent)
            .le16(84)
            .raw(&[2, 0])
            .le16(0x26)
            .le16(0x4000);
        let name = wide(&"\\PIPE\\".into());
        let data = Fields::new().byte(0).part(&name).zeros(2).zeros(2).part(input);
        // 10 words: 32 + 1 + 20 + 2 octets and one octet of padding.
        let answer = Fields::new()
            .le16(0)
            .le16(got)
            .le16(0)
            .le16(0)
            .le16(56)
            .le16(0)
            .le16(got)
            .le16(56)
            .le16(0)
            .raw(&[0, 0]);
        self.both_old(0x25, (words, data), 0, (answer, Fields::new().byte(0).part(output)))
    }

    fn write_old(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 60_000)? as u16;
        // 14 words: 32 + 1 + 28 + 2 octets and one octet of padding.
        let words = Fields::of(&[0xff, 0, 0, 0])
            .le16(0x4000)
            .le32(0)
            .le32(0)
            .le16(0)
            .le16(0)
            .le16(0)
            .le16(length)
            .le16(64)
            .le32(0);
        let answer = Fields::of(&[0xff, 0, 0, 0]).le16(length).le16(0).le32(0);
        self.both_old(0x2f, (words, Fields::new().byte(0).part(data)), 0, (answer, Fields::new()))
    }

    fn read_old(&mut self, data: &Octets) -> Result<(), Impossible> {
        let length = fits(data.len(), 60_000)? as u16;
        let words = Fields::of(&[0xff, 0, 0, 0])
            .le16(0x4000)
            .le32(0)
            .le16(length.max(1024))
            .le16(0)
            .le32(0)
            .le16(0)
            .le32(0);
        // 12 words: 32 + 1 + 24 + 2 octets and one octet of padding.
        let answer = Fields::of(&[0xff, 0, 0, 0])
            .le16(0xffff)
            .le16(0)
            .le16(0)
            .le16(length)
            .le16(60)
            .zeros(10);
        self.both_old(0x2e, (words, Fields::new()), 0, (answer, Fields::new().byte(0).part(data)))
    }
}

const SIGNATURE: &[u8] = b"NTLMSSP\0";
// Unicode, request target, sign, NTLM, always sign, extended session security, 128 bits, key
// exchange (MS-NLMP §2.2.2.5).
const NTLM_FLAGS: u32 = 0x6008_8215;

/// NTLM (MS-NLMP) in SPNEGO (RFC 4178): negotiate, challenge and authenticate messages.
fn tokens(wanted: &Wanted) -> Result<(Octets, Octets, Octets), Impossible> {
    let ntlm = || oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a]);
    let offer = Fields::of(SIGNATURE).le32(1).le32(NTLM_FLAGS).zeros(16).done();
    let inside = node(0x30, [node(0xa0, [node(0x30, [ntlm()])]), node(0xa2, [node(4, [offer])])]);
    let offer = node(0x60, [oid(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x02]), node(0xa0, [inside])]);
    let name = wide(&"SERVER".into());
    let length = name.len() as u16;
    let challenge = Fields::of(SIGNATURE)
        .le32(2)
        .le16(length)
        .le16(length)
        .le32(48)
        .le32(NTLM_FLAGS | 0x0001_0000)
        .raw(b"\x51\x9d\x02\xa4\x5f\x77\x10\xc3")
        .zeros(8)
        .le32(0)
        .le32(48 + u32::from(length))
        .part(&name)
        .done();
    let state = node(0xa0, [plain(0x0a, &[1])]);
    let challenge =
        node(0xa1, [node(0x30, [state, node(0xa1, [ntlm()]), node(0xa2, [node(4, [challenge])])])]);
    let texts = [
        Octets::framing([0; 24]),
        Octets::framing([0x5a; 24]),
        wide(&wanted.domain),
        wide(&wanted.user),
    ];
    let mut proof = Fields::of(SIGNATURE).le32(3);
    let mut place = 64_u32;
    let host = wide(&"CLIENT".into());
    for text in texts.iter().chain([&host, &Octets::new()]) {
        let length = fits(text.len(), 20_000)? as u16;
        proof = proof.le16(length).le16(length).le32(place);
        place += u32::from(length);
    }
    proof = proof.le32(NTLM_FLAGS);
    for text in texts.iter().chain([&host]) {
        proof = proof.part(text);
    }
    let proof = node(0xa1, [node(0x30, [node(0xa2, [node(4, [proof.done()])])])]);
    Ok((offer, challenge, proof))
}

fn accepted() -> Octets {
    node(0xa1, [node(0x30, [node(0xa0, [plain(0x0a, &[0])])])])
}

#[cfg(test)]
mod tests {
    use squall_rules::Numbers;

    use super::*;
    use crate::Origin;

    fn has(turn: &Turn, text: &[u8]) -> bool {
        super::super::contains(turn.octets.bytes(), text)
    }

    fn framed(turns: &[Turn], magic: &[u8]) {
        for turn in turns {
            let bytes = turn.octets.bytes();
            assert_eq!(
                bytes.len() - 4,
                u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize
            );
            assert_eq!(&bytes[4..8], magic);
        }
    }

    #[test]
    fn a_share_a_user_and_a_file_are_where_both_versions_have_them() {
        for version in [1, 2] {
            let mut parts = Parts {
                tests: vec![ApplicationTest::SmbVersion(Numbers::one(version))],
                ..Parts::default()
            };
            for (buffer, text) in [
                (Buffer::SmbShare, "\\\\a\\b"),
                (Buffer::SmbNtlmUser, "eve"),
                (Buffer::SmbNtlmDomain, "EVIL"),
                (Buffer::FileName, "x.exe"),
                (Buffer::FileData, "MZ..."),
            ] {
                parts.push(buffer, End::Client, Octets::of(text, Origin::Option(1)));
            }
            let turns = conversation(&parts).unwrap();
            framed(&turns, if version == 1 { b"\xffSMB" } else { b"\xfeSMB" });
            let wide_text = |text: &str| wide(&text.into()).bytes().to_vec();
            for (turn, text) in [(4, "eve"), (4, "EVIL"), (6, "\\\\a\\b"), (8, "x.exe")] {
                assert!(has(&turns[turn], &wide_text(text)), "{text} in version {version}");
            }
            assert!(has(&turns[10], b"MZ..."));
        }
    }

    #[test]
    fn a_call_goes_through_a_pipe() {
        for version in [1, 2] {
            let mut parts = Parts {
                tests: vec![ApplicationTest::SmbVersion(Numbers::one(version))],
                ..Parts::default()
            };
            parts.push(Buffer::DceStubData, End::Client, "stub".into());
            let turns = conversation(&parts).unwrap();
            assert!(has(&turns[6], wide(&"IPC$".into()).bytes()));
            let called = turns.iter().rposition(|turn| has(turn, b"stub")).unwrap();
            assert_eq!(turns[called].from, End::Client);
            if version == 1 {
                // Offset and length of the data, counted from the SMB header.
                let bytes = &turns[called].octets.bytes()[4..];
                let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
                let (length, place) = (word(33 + 22), word(33 + 24));
                assert_eq!(bytes.len(), place + length);
                assert_eq!(bytes[place..place + 3], [5, 0, 0]);
            }
        }
    }

    #[test]
    fn a_file_in_a_pipe_is_impossible() {
        let mut parts = Parts::default();
        parts.push(Buffer::SmbNamedPipe, End::Client, "\\\\a\\IPC$".into());
        parts.push(Buffer::FileData, End::Client, "x".into());
        assert!(conversation(&parts).is_err());
    }
}
