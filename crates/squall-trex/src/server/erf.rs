//! Captures in the Extensible Record Format of Endace's capture cards, the only ones that TRex's
//! client lets a server send on two ports.

use squall_units::FCS_LEN;

/// Octets of the header of each record.
const HEADER: usize = 16;
/// Octets of an extension header. The first bit of its first octet says that another one follows.
const EXTENSION: usize = 8;
/// Octets between the headers and an Ethernet frame.
const PAD: usize = 2;
const ETHERNET: u8 = 2;
const MORE: u8 = 0x80;

/// An Ethernet frame, without its FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub time_ns: u64,
    /// 0 to 3.
    pub interface: u8,
    pub wire_len: u32,
    pub octets: &'a [u8],
}

/// Reads the records of a file.
///
/// # Errors
/// A record is incomplete, or has no Ethernet frame; with its number.
pub fn read(mut file: &[u8]) -> Result<Vec<Record<'_>>, String> {
    let mut records = Vec::new();
    while !file.is_empty() {
        let number = records.len() + 1;
        let (record, rest) =
            first(file).map_err(|what| format!("record {number} of an ERF file: {what}"))?;
        records.push(record);
        file = rest;
    }
    Ok(records)
}

fn first(file: &[u8]) -> Result<(Record<'_>, &[u8]), &'static str> {
    const CUT: &str = "cut off, or no record";
    let (header, _) = file.split_first_chunk::<HEADER>().ok_or(CUT)?;
    let length = usize::from(u16::from_be_bytes([header[10], header[11]]));
    let (record, rest) = file.split_at_checked(length).ok_or(CUT)?;
    let kind = header[8];
    if kind & !MORE != ETHERNET {
        return Err("expected Ethernet");
    }
    let mut octets = record.get(HEADER..).ok_or(CUT)?;
    let mut more = kind & MORE != 0;
    while more {
        let (extension, after) = octets.split_first_chunk::<EXTENSION>().ok_or(CUT)?;
        more = extension[0] & MORE != 0;
        octets = after;
    }
    let octets = octets.get(PAD..).ok_or(CUT)?;
    let wire_len = u32::from(u16::from_be_bytes([header[14], header[15]]));
    let wire_len = wire_len.checked_sub(FCS_LEN).ok_or("shorter than an FCS")?;
    let octets = &octets[..octets.len().min(wire_len as usize)];
    // Whole seconds, and their fraction in 32 bits; little-endian, unlike the other fields.
    let fraction = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let seconds = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let time_ns =
        u64::from(seconds) * 1_000_000_000 + ((u64::from(fraction) * 1_000_000_000) >> 32);
    Ok((Record { time_ns, interface: header[9] & 3, wire_len, octets }, rest))
}

#[cfg(test)]
pub mod tests {
    use squall_units::SplitMix64;

    use super::*;

    /// A file with a frame of 60 octets for each of these interfaces, 1 ms apart.
    pub fn file(interfaces: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        for (number, interface) in interfaces.iter().enumerate() {
            let fraction = ((number as u64) << 32) / 1000;
            file.extend((fraction as u32).to_le_bytes());
            file.extend(7u32.to_le_bytes());
            file.extend([ETHERNET, 4 + interface, 0, 88, 0, 0, 0, 64, 0, 0]);
            file.extend([0xee; 60]);
            // The FCS, and octets up to a multiple of eight.
            file.extend([0; 10]);
        }
        file
    }

    #[test]
    fn records_have_the_time_the_interface_and_the_frame_without_fcs() {
        let file = file(&[0, 1, 3]);
        let records = read(&file).expect("sound");
        let found: Vec<_> =
            records.iter().map(|one| (one.interface, one.wire_len, one.octets.len())).collect();
        assert_eq!(found, [(0, 60, 60), (1, 60, 60), (3, 60, 60)]);
        assert_eq!(records[2].time_ns / 1000, 7_001_999);
        let mut extended = file[..88].to_vec();
        extended[8] |= MORE;
        extended[11] += 16;
        extended.splice(16..16, [[MORE, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
        assert_eq!(read(&extended).expect("sound"), records[..1]);
    }

    #[test]
    fn broken_files_are_errors() {
        let file = file(&[0, 1]);
        let mut chance = SplitMix64(3);
        for _ in 0..2000 {
            let mut broken = file[..(chance.draw() % 177) as usize].to_vec();
            for _ in 0..chance.draw() % 4 {
                if let Some(octet) = broken.get_mut((chance.draw() % 176) as usize) {
                    *octet = chance.draw() as u8;
                }
            }
            _ = read(&broken);
        }
        for (broken, what) in [(&file[..100], "record 2"), (&[9; 40][..], "record 1")] {
            assert!(read(broken).expect_err("broken").contains(what));
        }
    }
}
