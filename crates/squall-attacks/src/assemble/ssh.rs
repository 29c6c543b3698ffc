//! SSH: banners and key exchange (RFC 4253).

use squall_rules::{ApplicationTest, Buffer, End};

use super::dialog::one_line;
use super::{Impossible, Parts};
use crate::{Octets, Turn};

/// Default algorithms: key exchange, host key, cipher, MAC, compression.
const KEY_EXCHANGE: &str = "curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256";
const HOST_KEY: &str = "ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-256";
const CIPHER: &str = "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr";
const CODE: &str = "hmac-sha2-256-etm@openssh.com,hmac-sha2-256";
const COMPRESSION: &str = "none";

/// Banners, KEXINIT, and the start of the key exchange.
pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    for part in &parts.buffers {
        if matches!(part.0, Buffer::SshHassh | Buffer::SshHasshServer) {
            return Err(Impossible(format!(
                "{} is a hash, and no input with this hash is known",
                part.0.name()
            )));
        }
    }
    let mut turns = vec![
        Turn::new(End::Server, banner(parts, End::Server)?),
        Turn::new(End::Client, banner(parts, End::Client)?),
    ];
    turns.push(Turn::new(End::Client, offer(parts, End::Client)?));
    turns.push(Turn::new(End::Server, offer(parts, End::Server)?));
    // The client's key is message 30 with 32 octets. The reply has host key, key and signature.
    let key = |seed: u8| {
        (0..32u8).map(|at| at.wrapping_mul(37).wrapping_add(seed) ^ 0x5a).collect::<Vec<u8>>()
    };
    turns.push(Turn::new(
        End::Client,
        packet(&Octets::framing([&[30, 0, 0, 0, 32][..], &key(1)].concat())),
    ));
    let host = [&[0, 0, 0, 11][..], b"ssh-ed25519", &[0, 0, 0, 32], &key(2)].concat();
    let signature = [&[0, 0, 0, 11][..], b"ssh-ed25519", &[0, 0, 0, 64], &key(3), &key(4)].concat();
    let count = |octets: &[u8]| [&(octets.len() as u32).to_be_bytes()[..], octets].concat();
    let mut answer = packet(&Octets::framing(
        [&[31][..], &count(&host), &count(&key(5)), &count(&signature)].concat(),
    ));
    answer.append(&packet(&Octets::from(&[21])));
    turns.push(Turn::new(End::Server, answer));
    turns.push(Turn::new(End::Client, packet(&Octets::from(&[21]))));
    Ok(turns)
}

fn banner(parts: &Parts, from: End) -> Result<Octets, Impossible> {
    let required = parts.tests.iter().find_map(|test| match test {
        ApplicationTest::SshVersion(version) => Some(version.as_str()),
        _ => None,
    });
    // 2_compat matches a server that supports both versions.
    let usual = Octets::from(match required {
        Some("2_compat" | "2_COMPAT") => "1.99",
        Some(version) => version,
        None => "2.0",
    });
    let software = Octets::from("OpenSSH_9.6");
    let protocol =
        one_line(Buffer::SshProtocol, parts.get(Buffer::SshProtocol, from).unwrap_or(&usual))?;
    let software =
        one_line(Buffer::SshSoftware, parts.get(Buffer::SshSoftware, from).unwrap_or(&software))?;
    if protocol.bytes().contains(&b'-') {
        return Err(Impossible("an SSH version ends at a hyphen".into()));
    }
    let mut all = Octets::from("SSH-");
    all.append(protocol);
    all.append(&"-".into());
    all.append(software);
    // The limit of 255 includes the line end (RFC 4253 §4.2).
    if all.len() > 253 {
        return Err(Impossible("an SSH banner has at most 255 octets".into()));
    }
    all.append(&"\r\n".into());
    Ok(all)
}

fn offer(parts: &Parts, from: End) -> Result<Octets, Impossible> {
    let text = match from {
        End::Client => parts.get(Buffer::SshHasshString, from),
        End::Server => parts.get(Buffer::SshHasshServerString, from),
    };
    let mut lists: Vec<Octets> =
        [KEY_EXCHANGE, CIPHER, CODE, COMPRESSION].into_iter().map(Octets::from).collect();
    if let Some(text) = text {
        // HASSH: key exchange;ciphers;MACs;compression.
        let ends: Vec<usize> = text
            .bytes()
            .iter()
            .enumerate()
            .filter(|(_, octet)| **octet == b';')
            .map(|(at, _)| at)
            .collect();
        let [first, second, third] = ends[..] else {
            return Err(Impossible("a hassh text has four lists".into()));
        };
        let ranges = [0..first, first + 1..second, second + 1..third, third + 1..text.len()];
        lists = ranges.into_iter().map(|range| text.slice(range)).collect();
    }
    let host_key = Octets::from(HOST_KEY);
    let empty = Octets::new();
    let (usual_cipher, usual_code, usual_compression) =
        (CIPHER.into(), CODE.into(), COMPRESSION.into());
    // HASSH uses the lists for the sender's direction. The other direction gets defaults.
    let order = match from {
        End::Client => [
            &lists[0],
            &host_key,
            &lists[1],
            &usual_cipher,
            &lists[2],
            &usual_code,
            &lists[3],
            &usual_compression,
            &empty,
            &empty,
        ],
        End::Server => [
            &lists[0],
            &host_key,
            &usual_cipher,
            &lists[1],
            &usual_code,
            &lists[2],
            &usual_compression,
            &lists[3],
            &empty,
            &empty,
        ],
    };
    let mut all = Octets::from(&[20]);
    all.append(&Octets::framing(
        (0..16u8).map(|at| at.wrapping_mul(59) ^ 0x33).collect::<Vec<u8>>(),
    ));
    for list in order {
        all.append(&Octets::framing((list.len() as u32).to_be_bytes()));
        all.append(list);
    }
    // first_kex_packet_follows is false; four reserved octets.
    all.append(&Octets::from(&[0; 5]));
    match all.len() {
        ..=32_000 => Ok(packet(&all)),
        _ => Err(Impossible("an SSH offer has at most 32000 octets".into())),
    }
}

/// A packet with its length, padded to a multiple of eight.
fn packet(payload: &Octets) -> Octets {
    let mut padding = 8 - (payload.len() + 5) % 8;
    if padding < 4 {
        padding += 8;
    }
    let length = (payload.len() + padding + 1) as u32;
    let mut all = Octets::framing(length.to_be_bytes());
    all.append(&Octets::framing([padding as u8]));
    all.append(payload);
    all.append(&Octets::framing(vec![0; padding]));
    all
}

#[cfg(test)]
mod tests {
    use squall_rules::Application;

    use super::super::{assemble, contains};
    use super::*;

    #[test]
    fn banners_contain_the_required_text_and_packets_are_complete() {
        let buffers = vec![(Buffer::SshSoftware, End::Client, "evil_1".into())];
        let turns = assemble(Application::Ssh, &Parts { buffers, ..Parts::default() }).unwrap();
        assert_eq!(turns[0].octets.bytes(), b"SSH-2.0-OpenSSH_9.6\r\n");
        assert_eq!(turns[1].octets.bytes(), b"SSH-2.0-evil_1\r\n");
        for turn in &turns[2..] {
            let mut rest = turn.octets.bytes();
            while let [a, b, c, d, tail @ ..] = rest {
                let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                assert_eq!((length + 4) % 8, 0);
                rest = &tail[length..];
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_hassh_text_is_the_offer_of_the_end() {
        let buffers =
            vec![(Buffer::SshHasshString, End::Client, "kex1,kex2;cipher;mac;none".into())];
        let turns = assemble(Application::Ssh, &Parts { buffers, ..Parts::default() }).unwrap();
        assert!(
            contains(turns[2].octets.bytes(), b"\0\0\0\x09kex1,kex2")
                && contains(turns[2].octets.bytes(), b"\0\0\0\x03mac")
        );
        let buffers = vec![(Buffer::SshHassh, End::Client, "00".into())];
        assert!(assemble(Application::Ssh, &Parts { buffers, ..Parts::default() }).is_err());
    }
}
