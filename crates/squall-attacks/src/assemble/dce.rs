//! DCE/RPC (C706, chapter 12): binds to an interface and calls an operation.

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

/// A call.
pub(super) struct Call {
    /// UUID of the interface, in text order.
    uuid: [u8; 16],
    version: u16,
    operation: u16,
    arguments: Octets,
    results: Octets,
}

// PDU types (C706, chapter 12).
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;

/// Default interface: the service control manager.
const USUAL: [u8; 16] = [
    0x36, 0x7a, 0xbb, 0x81, 0x98, 0x44, 0x35, 0xf1, 0xad, 0x32, 0x98, 0xf0, 0x38, 0x00, 0x10, 0x03,
];
/// Transfer syntax: NDR version 2.
const TRANSFER: [u8; 20] = [
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60,
    2, 0, 0, 0,
];

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let call = Call::of(parts)?;
    let messages = [call.bind(), call.bind_ack(), call.request()?, call.response()?];
    let ends = [End::Client, End::Server, End::Client, End::Server];
    Ok(ends.into_iter().zip(messages).map(|(from, octets)| Turn::new(from, octets)).collect())
}

impl Call {
    pub fn of(parts: &Parts) -> Result<Self, Impossible> {
        let interface = parts.tests.iter().find_map(|test| match test {
            ApplicationTest::DceInterface { uuid, version, .. } => Some((*uuid, version)),
            _ => None,
        });
        let (uuid, version) = match interface {
            None => (USUAL, 2),
            Some((uuid, versions)) => {
                let version = [1, 2, 3, 0].into_iter().find(|version| versions.contains(*version));
                let version = version
                    .or_else(|| versions.first())
                    .and_then(|version| u16::try_from(version).ok());
                (
                    uuid,
                    version.ok_or_else(|| {
                        Impossible("the version of an interface is at most 65535".into())
                    })?,
                )
            }
        };
        let operation = number(
            parts,
            |test| match test {
                ApplicationTest::DceOpnum(numbers) => Some(numbers),
                _ => None,
            },
            &[],
            u16::MAX.into(),
        )?;
        let stub =
            |from| parts.get(Buffer::DceStubData, from).cloned().or_else(|| payload(parts, from));
        Ok(Call {
            uuid,
            version,
            operation: operation.unwrap_or(15) as u16,
            arguments: stub(End::Client).unwrap_or_else(|| Octets::framing([0; 24])),
            results: stub(End::Server).unwrap_or_else(|| Octets::framing([0; 4])),
        })
    }

    pub fn bind(&self) -> Octets {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.uuid;
        let body = Fields::new()
            .le16(4280)
            .le16(4280)
            .le32(0)
            .raw(&[1, 0, 0, 0])
            .raw(&[0, 0, 1, 0])
            .raw(&[d, c, b, a, f, e, h, g])
            .raw(&rest)
            .le16(self.version)
            .le16(0)
            .raw(&TRANSFER);
        pdu(BIND, 1, body)
    }

    pub fn bind_ack(&self) -> Octets {
        let body = Fields::new()
            .le16(4280)
            .le16(4280)
            .le32(0x53f0)
            .le16(4)
            .raw(b"135\0")
            .zeros(2)
            .raw(&[1, 0, 0, 0])
            .le16(0)
            .le16(0)
            .raw(&TRANSFER);
        pdu(BIND_ACK, 1, body)
    }

    pub fn request(&self) -> Result<Octets, Impossible> {
        let length = fits(self.arguments.len(), 65_000)?;
        let body =
            Fields::new().le32(length as u32).le16(0).le16(self.operation).part(&self.arguments);
        Ok(pdu(REQUEST, 2, body))
    }

    pub fn response(&self) -> Result<Octets, Impossible> {
        let length = fits(self.results.len(), 65_000)?;
        Ok(pdu(RESPONSE, 2, Fields::new().le32(length as u32).le16(0).le16(0).part(&self.results)))
    }
}

/// A single-fragment PDU with `body`, little-endian.
fn pdu(kind: u8, call: u32, body: Fields) -> Octets {
    let length = 16 + body.len();
    Fields::new()
        .raw(&[5, 0, kind, 3, 0x10, 0, 0, 0])
        .le16(length as u16)
        .le16(0)
        .le32(call)
        .fields(body)
        .done()
}

#[cfg(test)]
mod tests {
    use squall_rules::Numbers;

    use super::*;
    use crate::Origin;

    #[test]
    fn an_operation_of_the_interface_is_called_with_the_stub_data() {
        let uuid: [u8; 16] = std::array::from_fn(|at| at as u8);
        let tests = vec![
            ApplicationTest::DceInterface {
                uuid,
                version: Numbers::range(3..=9),
                any_fragment: false,
            },
            ApplicationTest::DceOpnum(Numbers::range(31..=40)),
        ];
        let mut parts = Parts { tests, ..Parts::default() };
        parts.push(
            Buffer::DceStubData,
            End::Client,
            Octets::of(b"stub".as_slice(), Origin::Option(4)),
        );
        let turns = conversation(&parts).unwrap();
        let bind = turns[0].octets.bytes();
        assert_eq!(bind.len(), usize::from(u16::from_le_bytes([bind[8], bind[9]])));
        assert_eq!(
            bind[32..52],
            [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15, 3, 0, 0, 0]
        );
        let ack = turns[1].octets.bytes();
        assert_eq!((ack[2], ack.len(), ack[36..40].to_vec()), (BIND_ACK, 60, vec![0; 4]));
        let request = &turns[2].octets;
        assert_eq!(request.bytes()[16..], *b"\x04\0\0\0\0\0\x1f\0stub");
        assert_eq!(request.origins()[24..], [Origin::Option(4); 4]);
    }
}
