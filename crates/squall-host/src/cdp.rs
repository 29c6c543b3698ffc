//! CDP, Cisco's discovery protocol, version 2: the announcements of hosts, and those of their
//! neighbors.
//!
//! Cisco describes the format in "Cisco Discovery Protocol (CDP) packet format" (Catalyst LAN
//! Switching documentation); types of values and the checksum are as Wireshark and lldpd have them.

use std::net::Ipv4Addr;

use squall_units::{MacAddr, Nanos, be16, get_be16};

use crate::speaker::{Announcement, SpeakerTimers, printable};

/// The group address of CDP, which Cisco's bridges do not forward.
pub const CDP_GROUP: MacAddr = MacAddr([1, 0, 0x0c, 0xcc, 0xcc, 0xcc]);
/// LLC and SNAP: unnumbered information, Cisco's identifier, and CDP.
const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0];
/// Longest payload of an 802.3 frame, whose type field is its length.
const MOST_LENGTH: u16 = 1500;
const VERSION: u8 = 2;
/// Version, time to live and checksum.
const HEADER: usize = 4;

/// Types of values.
const DEVICE: u16 = 1;
const ADDRESSES: u16 = 2;
const PORT: u16 = 3;
const CAPABILITIES: u16 = 4;
const SOFTWARE: u16 = 5;
const PLATFORM: u16 = 6;
/// The capability of a host.
const HOST: u32 = 0x10;

/// Settings of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdpSettings {
    /// 60 s by default, after three announcements 1 s apart.
    pub timers: SpeakerTimers,
    /// Seconds for which neighbors keep an announcement: 180 by default.
    pub hold: u8,
    /// Device ID, of which `{}` is the number of the host; empty: its MAC address.
    pub device: String,
}

impl Default for CdpSettings {
    fn default() -> Self {
        Self {
            timers: SpeakerTimers {
                interval: Nanos(60_000_000_000),
                fast: 3,
                fast_interval: Nanos(1_000_000_000),
            },
            hold: 180,
            device: String::new(),
        }
    }
}

/// Appends the length field of an 802.3 frame and the announcement of a host. Its MAC address is its
/// port.
pub fn write(
    (mac, address): (MacAddr, Option<Ipv4Addr>),
    ttl: u8,
    number: u32,
    settings: &CdpSettings,
    out: &mut Vec<u8>,
) {
    let at = out.len();
    out.extend([0, 0]);
    out.extend(SNAP);
    let begin = out.len();
    out.extend([VERSION, ttl, 0, 0]);
    let port = mac.to_string();
    let device = match settings.device.as_str() {
        "" => port.clone(),
        device => device.replace("{}", &number.to_string()),
    };
    value(DEVICE, device.as_bytes(), out);
    if let Some(address) = address {
        // One address: its protocol is a network layer identifier (NLPID), that of IP.
        let [a, b, c, d] = address.octets();
        value(ADDRESSES, &[0, 0, 0, 1, 1, 1, 0xcc, 0, 4, a, b, c, d], out);
    }
    value(PORT, port.as_bytes(), out);
    value(CAPABILITIES, &HOST.to_be_bytes(), out);
    value(SOFTWARE, NAME, out);
    value(PLATFORM, NAME, out);
    let check = checksum(&out[begin..], true);
    out[begin + 2..begin + 4].copy_from_slice(&check.to_be_bytes());
    let length = (out.len() - at - 2) as u16;
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

const NAME: &[u8] = b"Squall";

fn value(kind: u16, octets: &[u8], out: &mut Vec<u8>) {
    out.extend(kind.to_be_bytes());
    out.extend((4 + octets.len() as u16).to_be_bytes());
    out.extend(octets);
}

/// The checksum of a message whose own checksum is 0. `cisco`: Cisco's devices take the last octet
/// of an odd number as a signed number in the low half of a word, and compensate for the sign.
fn checksum(message: &[u8], cisco: bool) -> u16 {
    let pairs = message.chunks_exact(2);
    let last = pairs.remainder().first().map(|last| u64::from(*last));
    let sum: u64 = pairs.map(|pair| u64::from(be16(pair, 0))).sum();
    let last = match (last, cisco) {
        (None, _) => 0,
        (Some(last), false) => last << 8,
        (Some(last), true) if last & 0x80 != 0 => 0xff00 + last - 1,
        (Some(last), true) => last,
    };
    !squall_wire::checksum::fold(sum + last)
}

/// Whether a frame to this address with this type field is one of CDP.
pub(crate) fn is_cdp(to: MacAddr, kind: u16, payload: &[u8]) -> bool {
    to == CDP_GROUP && kind <= MOST_LENGTH && payload.starts_with(&SNAP)
}

/// Parses what follows the length field of a frame.
///
/// # Errors
/// The reason for which the announcement is discarded.
pub fn parse(payload: &[u8], length: u16) -> Result<Announcement, &'static str> {
    // Short frames are padded.
    let payload = payload.get(..length.into()).ok_or("truncated")?;
    let message = payload.strip_prefix(&SNAP).ok_or("not_cdp")?;
    let (&[version, ttl, ..], mut rest) =
        message.split_first_chunk::<HEADER>().ok_or("truncated")?;
    if !(1..=VERSION).contains(&version) {
        return Err("bad_version");
    }
    let given = be16(message, 2);
    let mut plain = message.to_vec();
    plain[2..4].fill(0);
    if given != checksum(&plain, true) && given != checksum(&plain, false) {
        return Err("bad_checksum");
    }
    let mut found = Announcement { ttl: ttl.into(), ..Announcement::default() };
    while !rest.is_empty() {
        let kind = get_be16(rest, 0).ok_or("truncated")?;
        let len = usize::from(get_be16(rest, 2).ok_or("truncated")?);
        let (one, more) = rest.split_at_checked(len).ok_or("truncated")?;
        let octets = one.get(4..).ok_or("bad_length")?;
        rest = more;
        match kind {
            DEVICE => found.chassis = printable(octets),
            PORT => found.port = printable(octets),
            PLATFORM => found.system = printable(octets),
            _ => {}
        }
    }
    if found.chassis.is_empty() { Err("no_device") } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Speaker;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn written(ttl: u8, device: &str, address: Option<Ipv4Addr>) -> Vec<u8> {
        let settings = CdpSettings { device: device.into(), ..CdpSettings::default() };
        let mut out = Vec::new();
        write((MAC, address), ttl, 17, &settings, &mut out);
        out
    }

    fn read(octets: &[u8]) -> Result<Announcement, &'static str> {
        parse(&octets[2..], be16(octets, 0))
    }

    /// The message with another checksum that fits, after a change.
    fn changed(octets: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut octets = octets.to_vec();
        change(&mut octets);
        let length = (octets.len() - 2) as u16;
        octets[..2].copy_from_slice(&length.to_be_bytes());
        octets[12..14].fill(0);
        let check = checksum(&octets[10..], true);
        octets[12..14].copy_from_slice(&check.to_be_bytes());
        octets
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written() {
        let octets = written(180, "device-{}", Some([10, 0, 0, 2].into()));
        assert_eq!(usize::from(be16(&octets, 0)), octets.len() - 2, "the length of 802.3");
        assert_eq!(octets[2..10], [0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0]);
        let found = read(&[&octets[..], &[0; 9]].concat()).unwrap();
        let texts = (&found.chassis[..], found.port, found.ttl, &found.system[..]);
        assert_eq!(texts, ("device-17", MAC.to_string(), 180, "Squall"));
        let unnamed = read(&written(180, "", None)).unwrap();
        assert_eq!(unnamed.chassis, MAC.to_string());
        assert_eq!(read(&written(0, "a", None)).unwrap().ttl, 0);
    }

    #[test]
    fn a_speaker_announces_three_times_in_2_seconds_and_then_each_minute() {
        let timers = CdpSettings::default().timers;
        let mut speaker = Speaker::default();
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        speaker.start(seconds(10), &timers);
        let times: Vec<u64> = (0..200).filter(|at| speaker.timer(seconds(*at), &timers)).collect();
        assert_eq!(times, [10, 11, 12, 72, 132, 192]);
    }

    #[test]
    fn the_last_octet_of_an_odd_number_is_summed_as_ciscos_devices_do() {
        // The words 0x02b4 and 0x0000, and an octet.
        assert_eq!(checksum(&[2, 0xb4, 0, 0, 0x41], true), !(0x02b4 + 0x41));
        assert_eq!(checksum(&[2, 0xb4, 0, 0, 0x41], false), !(0x02b4 + 0x4100));
        // 0x02b4 + 0xff7f, with the carry of the sum.
        assert_eq!(checksum(&[2, 0xb4, 0, 0, 0x80], true), !0x0234);
        for device in ["abc", "abcd"] {
            let octets = written(180, device, None);
            assert!(read(&octets).is_ok(), "{} octets", octets.len());
            let mut wrong = octets.clone();
            wrong[20] ^= 1;
            assert_eq!(read(&wrong), Err("bad_checksum"));
        }
        let mut plain = written(180, "abcd", None);
        let odd = plain.len() % 2 == 1;
        plain[12..14].fill(0);
        let check = checksum(&plain[10..], false);
        plain[12..14].copy_from_slice(&check.to_be_bytes());
        assert!(odd && read(&plain).is_ok(), "the checksum of others is accepted, too");
    }

    #[test]
    fn hostile_announcements_are_discarded_with_a_reason() {
        let octets = written(180, "device", Some([10, 0, 0, 2].into()));
        for len in 2..octets.len() {
            assert!(parse(&octets[2..len], be16(&octets, 0)).is_err(), "{len}");
        }
        let reason = |change: fn(&mut Vec<u8>)| read(&changed(&octets, change)).unwrap_err();
        assert_eq!(reason(|octets| octets[10] = 3), "bad_version");
        assert_eq!(reason(|octets| octets[3] = 0), "not_cdp");
        assert_eq!(reason(|octets| octets[16..18].fill(0)), "bad_length");
        assert_eq!(reason(|octets| octets[16] = 0xff), "truncated");
        assert_eq!(reason(|octets| octets.extend([0, 9, 0])), "truncated");
        assert_eq!(reason(|octets| octets[15] = 9), "no_device");
        let hostile = changed(&octets, |octets| octets[18] = 0x1b);
        assert_eq!(read(&hostile).unwrap().chassis, "\u{fffd}evice");
    }
}
