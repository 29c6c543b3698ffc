//! Modbus over TCP, DNP3 (IEEE 1815) over TCP, EtherNet/IP with CIP.

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Origin, Turn};

pub(super) fn modbus(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let function = number(
        parts,
        |test| match test {
            ApplicationTest::ModbusFunction(numbers) => Some(numbers),
            _ => None,
        },
        &[3, 1, 6, 16],
        127,
    )?
    .unwrap_or(3) as u8;
    let unit = number(
        parts,
        |test| match test {
            ApplicationTest::ModbusUnit(numbers) => Some(numbers),
            _ => None,
        },
        &[1],
        255,
    )?
    .unwrap_or(1) as u8;
    let (required, answered): (&[u8], &[u8]) = match function {
        1 | 2 => (&[0, 0, 0, 8], &[1, 0x51]),
        3 | 4 => (&[0, 0, 0, 2], &[4, 0, 0x51, 0, 0x0a]),
        5 => (&[0, 1, 0xff, 0], &[0, 1, 0xff, 0]),
        6 => (&[0, 1, 0, 3], &[0, 1, 0, 3]),
        7 | 11 | 12 | 17 => (&[], if function == 7 { &[0] } else { &[4, 0, 0, 0, 0x51] }),
        8 => (&[0, 0, 0xa5, 0x37], &[0, 0, 0xa5, 0x37]),
        15 => (&[0, 0, 0, 8, 1, 0x51], &[0, 0, 0, 8]),
        16 => (&[0, 0, 0, 1, 2, 0, 0x51], &[0, 0, 0, 1]),
        20 => (&[7, 6, 0, 4, 0, 1, 0, 1], &[4, 3, 6, 0, 0x51]),
        21 => (&[9, 6, 0, 4, 0, 7, 0, 1, 6, 0xaf], &[9, 6, 0, 4, 0, 7, 0, 1, 6, 0xaf]),
        22 => (&[0, 4, 0, 0xf2, 0, 0x25], &[0, 4, 0, 0xf2, 0, 0x25]),
        23 => (&[0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0x51], &[2, 0, 0x51]),
        24 => (&[0, 4], &[0, 4, 0, 1, 0, 0x51]),
        43 => (&[14, 1, 0], &[14, 1, 1, 0, 0, 1, 0, 4, b'A', b'C', b'M', b'E']),
        _ => (&[], &[]),
    };
    let mut turns = vec![];
    for (from, usual) in [(End::Client, required), (End::Server, answered)] {
        let data = parts.get(Buffer::ModbusData, from).cloned().or_else(|| payload(parts, from));
        let data = data.unwrap_or_else(|| Octets::framing(usual));
        let length = fits(data.len(), 252)? as u16 + 2;
        let message =
            Fields::new().be16(0x5101).be16(0).be16(length).byte(unit).byte(function).part(&data);
        turns.push(Turn::new(from, message.done()));
    }
    Ok(turns)
}

/// The DNP3 application layer: control octet, function code, objects.
pub(super) fn dnp3(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let function = number(
        parts,
        |test| match test {
            ApplicationTest::Dnp3Function(numbers) => Some(numbers),
            _ => None,
        },
        &[1, 129],
        131,
    )?;
    let answers = function.is_some_and(|function| function >= 129);
    let mut turns = vec![];
    for from in [End::Client, End::Server] {
        let data = parts.get(Buffer::Dnp3Data, from).cloned().or_else(|| payload(parts, from));
        let function = match (from, function) {
            (End::Client, Some(function)) if !answers => function as u8,
            (End::Server, Some(function)) if answers => function as u8,
            (End::Client, _) => 1,
            (End::Server, _) => 129,
        };
        let mut fragment = data.unwrap_or_default();
        let usual: &[u8] =
            if from == End::Client { &[0xc1, function, 60, 2, 6] } else { &[0xc1, function, 0, 0] };
        for (at, byte) in usual.iter().enumerate() {
            match fragment.origins().get(at) {
                None => fragment.push(*byte, Origin::Framing),
                Some(Origin::Free) if at < 2 => fragment.set(at, *byte, Origin::Framing),
                Some(_) => {}
            }
        }
        turns.push(Turn::new(from, link_frames(from, &fragment)?));
    }
    Ok(turns)
}

/// Splits a fragment into link frames, each with one transport segment.
fn link_frames(from: End, fragment: &Octets) -> Result<Octets, Impossible> {
    // A frame has at most 250 octets of user data: the transport header and up to 249 octets.
    const SEGMENT: usize = 249;
    fits(fragment.len(), 2048)?;
    let segments = fragment.len().div_ceil(SEGMENT);
    let mut all = Fields::new();
    for segment in 0..segments {
        let begin = segment * SEGMENT;
        let part = fragment.slice(begin..(begin + SEGMENT).min(fragment.len()));
        let transport = u8::from(segment + 1 == segments) << 7
            | u8::from(segment == 0) << 6
            | (segment as u8 & 0x3f);
        let user = Fields::of(&[transport]).part(&part).done();
        let (control, to, of) = if from == End::Client { (0xc4, 10, 1) } else { (0x44, 1, 10) };
        let header =
            Fields::of(&[0x05, 0x64, user.len() as u8 + 5, control]).le16(to).le16(of).done();
        all = all.part(&header).le16(checksum(header.bytes()));
        for begin in (0..user.len()).step_by(16) {
            let block = user.slice(begin..(begin + 16).min(user.len()));
            all = all.part(&block).le16(checksum(block.bytes()));
        }
    }
    Ok(all.done())
}

/// CRC-16/DNP: polynomial 0x3d65, reflected and complemented.
fn checksum(octets: &[u8]) -> u16 {
    !octets.iter().fold(0_u16, |crc, octet| {
        (0..8).fold(crc ^ u16::from(*octet), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xa6bc } else { crc >> 1 }
        })
    })
}

// Commands of the EtherNet/IP encapsulation header.
const LIST_SERVICES: u16 = 0x04;
const LIST_IDENTITY: u16 = 0x63;
const REGISTER: u16 = 0x65;
const SEND_RR: u16 = 0x6f;

pub(super) fn enip(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let command = number(
        parts,
        |test| match test {
            ApplicationTest::EnipCommand(numbers) => Some(numbers),
            _ => None,
        },
        &[SEND_RR.into(), REGISTER.into(), LIST_IDENTITY.into()],
        u16::MAX.into(),
    )?;
    let text = |buffer| parts.get(buffer, End::Server).or_else(|| parts.get(buffer, End::Client));
    let (product, service) = (text(Buffer::EnipProductName), text(Buffer::EnipServiceName));
    let identity = [
        "identity_status",
        "state",
        "serial",
        "product_code",
        "device_type",
        "vendor_id",
        "revision",
    ];
    let needs_identity = parts.tests.iter().any(|test| {
        matches!(test, ApplicationTest::Other { keyword, .. } if identity.iter().any(|name| keyword.ends_with(name)))
    });
    let command = match command {
        Some(command) => command as u16,
        None if product.is_some() || needs_identity => LIST_IDENTITY,
        None if service.is_some()
            || other(parts, "enip.capabilities", &[], u64::MAX)?.is_some() =>
        {
            LIST_SERVICES
        }
        None => SEND_RR,
    };
    let status = other(parts, "enip.status", &[0], u32::MAX.into())?.unwrap_or(0) as u32;
    let mut turns = vec![];
    if matches!(command, SEND_RR | 0x70) {
        let open = Fields::new().le16(1).le16(0);
        turns.push(Turn::new(End::Client, encapsulated(REGISTER, 0, 0, open.clone())?));
        turns.push(Turn::new(End::Server, encapsulated(REGISTER, SESSION, 0, open)?));
    }
    let session = if matches!(command, SEND_RR | 0x70 | 0x66) { SESSION } else { 0 };
    let (required, answered) = match command {
        LIST_SERVICES => (Fields::new(), services(parts, service)?),
        LIST_IDENTITY => (Fields::new(), identity_item(parts, product)?),
        REGISTER => {
            let version =
                other(parts, "enip.protocol_version", &[1], u16::MAX.into())?.unwrap_or(1) as u16;
            (Fields::new().le16(version).le16(0), Fields::new().le16(version).le16(0))
        }
        SEND_RR | 0x70 => cip(parts, command)?,
        _ => (Fields::new(), Fields::new()),
    };
    turns.push(Turn::new(End::Client, encapsulated(command, session, 0, required)?));
    // UnRegisterSession has no reply.
    if command != 0x66 && command != 0 {
        turns.push(Turn::new(End::Server, encapsulated(command, session, status, answered)?));
    }
    Ok(turns)
}

// The server chooses the handle. Any value except 0 works.
const SESSION: u32 = 0x0053_0001;

fn encapsulated(
    command: u16,
    session: u32,
    status: u32,
    data: Fields,
) -> Result<Octets, Impossible> {
    let length = fits(data.len(), 65_000)? as u16;
    let header = Fields::new()
        .le16(command)
        .le16(length)
        .le32(session)
        .le32(status)
        .raw(b"squall\0\0")
        .le32(0);
    Ok(header.fields(data).done())
}

fn services(parts: &Parts, name: Option<&Octets>) -> Result<Fields, Impossible> {
    let usual = Octets::from("Communications");
    let name = name.unwrap_or(&usual);
    let missing = 16 - fits(name.len(), 16)?;
    let capabilities =
        other(parts, "enip.capabilities", &[0x120], u16::MAX.into())?.unwrap_or(0x120) as u16;
    Ok(Fields::new()
        .le16(1)
        .le16(0x100)
        .le16(20)
        .le16(1)
        .le16(capabilities)
        .part(name)
        .zeros(missing))
}

fn identity_item(parts: &Parts, name: Option<&Octets>) -> Result<Fields, Impossible> {
    let usual = Octets::from("1756-L61/B");
    let name = name.unwrap_or(&usual);
    let length = fits(name.len(), 255)? as u8;
    let short = |keyword: &str, usual: u64| -> Result<u16, Impossible> {
        Ok(other(parts, keyword, &[usual], u16::MAX.into())?.unwrap_or(usual) as u16)
    };
    let serial = other(parts, "enip.serial", &[], u32::MAX.into())?.unwrap_or(0x510a_7731) as u32;
    let state = other(parts, "enip.state", &[3], 255)?.unwrap_or(3) as u8;
    let item = Fields::new()
        .le16(short("enip.protocol_version", 1)?)
        .raw(&[0, 2, 0xaf, 0x12, 192, 0, 2, 1])
        .zeros(8)
        .le16(short("enip.vendor_id", 1)?)
        .le16(short("enip.device_type", 14)?)
        .le16(short("enip.product_code", 54)?)
        .be16(short("enip.revision", 0x0b14)?)
        .le16(short("enip.identity_status", 0x60)?)
        .le32(serial)
        .byte(length)
        .part(name)
        .byte(state);
    Ok(Fields::new().le16(1).le16(0x0c).le16(item.len() as u16).fields(item))
}

/// A service request to a class and its reply.
fn cip(parts: &Parts, command: u16) -> Result<(Fields, Fields), Impossible> {
    let required = parts.tests.iter().find_map(|test| match test {
        ApplicationTest::CipService(numbers) => Some(numbers.as_slice()),
        _ => None,
    });
    let of = |at: usize, most: u64| -> Result<Option<u64>, Impossible> {
        let Some(numbers) = required.and_then(|required| required.get(at)) else { return Ok(None) };
        let found = numbers.first().filter(|number| *number <= most);
        found.map(Some).ok_or_else(|| Impossible(format!("the number of CIP is at most {most}")))
    };
    let named = |names: &[&str], most: u64| -> Result<Option<u64>, Impossible> {
        names.iter().try_fold(None, |found, name| Ok(found.or(other(parts, name, &[], most)?)))
    };
    let service = of(0, 127)?.unwrap_or(1) as u8;
    let class = of(1, 65_535)?.or(named(&["enip.cip_class", "cip_class"], 65_535)?).unwrap_or(1);
    let instance = named(&["enip.cip_instance", "cip_instance"], 65_535)?.unwrap_or(1);
    let attribute = of(2, 65_535)?.or(named(&["enip.cip_attribute", "cip_attribute"], 65_535)?);
    let status = named(&["enip.cip_status", "cip_status"], 255)?.unwrap_or(0) as u8;
    let mut path = segment(0x20, class).fields(segment(0x24, instance));
    if let Some(attribute) = attribute {
        path = path.fields(segment(0x30, attribute));
    }
    let words = fits(path.len() / 2, 255)? as u8;
    let request = Fields::of(&[service, words])
        .fields(path)
        .part(&payload(parts, End::Client).unwrap_or_default());
    let extended = named(&["enip.cip_extendedstatus"], 65_535)?;
    let mut response = Fields::of(&[service | 0x80, 0, status, u8::from(extended.is_some())]);
    if let Some(extended) = extended {
        response = response.le16(extended as u16);
    }
    response = response.part(&payload(parts, End::Server).unwrap_or_default());
    let items = |message: Fields| -> Result<Fields, Impossible> {
        let length = fits(message.len() + 2, 60_000)? as u16;
        let data = Fields::new().le32(0).le16(0).le16(2);
        Ok(match command {
            SEND_RR => data.le16(0).le16(0).le16(0xb2).le16(length - 2).fields(message),
            _ => data.le16(0xa1).le16(4).le32(0x51).le16(0xb1).le16(length).le16(1).fields(message),
        })
    };
    Ok((items(request)?, items(response)?))
}

/// A logical path segment of 8 or 16 bits.
fn segment(kind: u8, number: u64) -> Fields {
    match u8::try_from(number) {
        Ok(number) => Fields::of(&[kind, number]),
        Err(_) => Fields::of(&[kind | 1, 0]).le16(number as u16),
    }
}

#[cfg(test)]
mod tests {
    use squall_rules::Numbers;

    use super::*;

    #[test]
    fn dnp3s_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xea82);
        let mut parts = Parts {
            tests: vec![ApplicationTest::Dnp3Function(Numbers::one(13))],
            ..Parts::default()
        };
        parts.push(Buffer::Dnp3Data, End::Client, Octets::of([0xc0, 13, 1, 2], Origin::Option(1)));
        let turns = dnp3(&parts).unwrap();
        assert_eq!(turns[0].octets.bytes()[..8], [5, 0x64, 11, 0xc4, 10, 0, 1, 0]);
        assert_eq!(turns[0].octets.bytes()[10..16], [0xc0, 0xc0, 13, 1, 2, 6]);
    }

    #[test]
    fn a_cip_service_is_requested_from_a_class() {
        let numbers = [5, 300, 2].map(Numbers::one).to_vec();
        let parts = Parts { tests: vec![ApplicationTest::CipService(numbers)], ..Parts::default() };
        let turns = enip(&parts).unwrap();
        let request = turns[2].octets.bytes();
        assert_eq!(request[2..4], (request.len() as u16 - 24).to_le_bytes());
        assert!(request.ends_with(&[5, 4, 0x21, 0, 0x2c, 1, 0x24, 1, 0x30, 2]));
    }

    #[test]
    fn a_function_of_modbus_has_its_fields() {
        let parts = Parts {
            tests: vec![ApplicationTest::ModbusFunction(Numbers::one(6))],
            ..Parts::default()
        };
        assert_eq!(
            modbus(&parts).unwrap()[0].octets.bytes(),
            [0x51, 1, 0, 0, 0, 6, 1, 6, 0, 1, 0, 3]
        );
    }
}
