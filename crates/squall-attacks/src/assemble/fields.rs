//! Fields of binary protocols: numbers in both byte orders, lengths, numbers that satisfy a rule.

use squall_rules::{ApplicationTest, Buffer, End, Numbers};

use super::{Impossible, Parts, merged};
use crate::Octets;

/// A message under construction. All octets except those of parts are framing.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Octets);

impl Fields {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn of(bytes: &[u8]) -> Self {
        Fields(Octets::framing(bytes))
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.append(&Octets::framing(bytes));
        self
    }

    pub fn byte(self, number: u8) -> Self {
        self.raw(&[number])
    }

    pub fn be16(self, number: u16) -> Self {
        self.raw(&number.to_be_bytes())
    }

    pub fn be32(self, number: u32) -> Self {
        self.raw(&number.to_be_bytes())
    }

    pub fn le16(self, number: u16) -> Self {
        self.raw(&number.to_le_bytes())
    }

    pub fn le32(self, number: u32) -> Self {
        self.raw(&number.to_le_bytes())
    }

    pub fn le64(self, number: u64) -> Self {
        self.raw(&number.to_le_bytes())
    }

    pub fn zeros(self, count: usize) -> Self {
        self.raw(&vec![0; count])
    }

    /// Appends a part with its origins.
    pub fn part(mut self, part: &Octets) -> Self {
        self.0.append(part);
        self
    }

    pub fn fields(self, fields: Fields) -> Self {
        self.part(&fields.0)
    }

    /// Appends zeros up to a multiple of `unit` octets.
    pub fn align(self, unit: usize) -> Self {
        let missing = self.len().next_multiple_of(unit) - self.len();
        self.zeros(missing)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a part preceded by its length in two octets, big-endian.
    pub fn counted_be16(self, part: &Octets) -> Result<Self, Impossible> {
        let length = fits(part.len(), u16::MAX.into())? as u16;
        Ok(self.be16(length).part(part))
    }

    pub fn counted_be32(self, part: &Octets) -> Result<Self, Impossible> {
        let length = fits(part.len(), MAX_LEN)? as u32;
        Ok(self.be32(length).part(part))
    }

    pub fn done(self) -> Octets {
        self.0
    }
}

/// Maximum length of a message in octets, longer than any rule requires. TCP divides it into
/// segments.
const MAX_LEN: usize = 1 << 20;

/// Returns `length` if it is at most `most`, otherwise an error.
pub(super) fn fits(length: usize, most: usize) -> Result<usize, Impossible> {
    if length > most {
        return Err(Impossible(format!("{length} octets do not fit into a field of {most}")));
    }
    Ok(length)
}

/// Converts text to UTF-16LE, with one character per octet.
pub(super) fn wide(text: &Octets) -> Octets {
    let mut all = Octets::new();
    for (byte, origin) in text.bytes().iter().zip(text.origins()) {
        all.push(*byte, *origin);
        all.push(0, *origin);
    }
    all
}

/// A number that satisfies all tests selected by `selects`: a usual one if possible, otherwise the
/// smallest.
pub(super) fn number(
    parts: &Parts,
    selects: impl Fn(&ApplicationTest) -> Option<&Numbers>,
    usual: &[u64],
    most: u64,
) -> Result<Option<u64>, Impossible> {
    let mut allowed: Option<Numbers> = None;
    for numbers in parts.tests.iter().filter_map(selects) {
        allowed =
            Some(allowed.map_or_else(|| numbers.clone(), |before| before.intersection(numbers)));
    }
    let Some(allowed) = allowed else { return Ok(None) };
    let usual = usual.iter().copied().find(|number| allowed.contains(*number));
    match usual.or_else(|| allowed.first()) {
        Some(number) if number <= most => Ok(Some(number)),
        _ => Err(Impossible(format!("no number up to {most} is allowed"))),
    }
}

/// Like [`number`], but for an [`ApplicationTest::Other`].
pub(super) fn other(
    parts: &Parts,
    keyword: &str,
    usual: &[u64],
    most: u64,
) -> Result<Option<u64>, Impossible> {
    number(
        parts,
        |test| match test {
            ApplicationTest::Other { keyword: of, numbers } if *of == keyword => Some(numbers),
            _ => None,
        },
        usual,
        most,
    )
}

/// The raw payload that this end must send.
pub(super) fn payload(parts: &Parts, from: End) -> Option<Octets> {
    let all = parts.all(Buffer::RawPayload, from).chain(parts.all(Buffer::Payload, from));
    let all = merged(all, b"");
    (!all.is_empty()).then_some(all)
}

/// The part for `buffer`, or a default.
pub(super) fn part_or(parts: &Parts, buffer: Buffer, from: End, usual: &str) -> Octets {
    parts.get(buffer, from).cloned().unwrap_or_else(|| Octets::from(usual))
}

#[cfg(test)]
mod tests {
    use squall_rules::Application::{self, *};
    use squall_rules::Buffer::*;

    use super::super::{Style, assemble, contains};
    use super::*;
    use crate::Origin;

    fn sent(application: Application, parts: &Parts, from: End) -> Octets {
        let mut all = Octets::new();
        let turns =
            assemble(application, parts).unwrap_or_else(|error| panic!("{application:?}: {error}"));
        turns.iter().filter(|turn| turn.from == from).for_each(|turn| all.append(&turn.octets));
        all
    }

    #[test]
    fn each_part_is_sent_by_its_end_and_keeps_its_origin() {
        let cases: &[(Application, Buffer, End, &str)] = &[
            (Krb5, Krb5ClientName, End::Client, "eve"),
            (Krb5, Krb5ServerName, End::Server, "cifs"),
            (Snmp, SnmpCommunity, End::Client, "private"),
            (Snmp, SnmpUser, End::Client, "root"),
            (Ldap, LdapRequestDn, End::Client, "dc=evil"),
            (Ldap, LdapResponseDn, End::Server, "cn=evil"),
            (Nfs, FileName, End::Client, "shadow"),
            (Nfs, FileData, End::Client, "MZ"),
            (Nfs, FileData, End::Server, "MZ"),
            (Mqtt, MqttClientId, End::Client, "bot"),
            (Mqtt, MqttUserName, End::Client, "root"),
            (Mqtt, MqttPassword, End::Client, "1234"),
            (Mqtt, MqttWillTopic, End::Client, "w"),
            (Mqtt, MqttWillMessage, End::Client, "m"),
            (Mqtt, MqttPublishTopic, End::Server, "cmd"),
            (Mqtt, MqttPublishMessage, End::Client, "rm -rf"),
            (Mqtt, MqttSubscribeTopic, End::Client, "$SYS/#"),
            (Mqtt, MqttUnsubscribeTopic, End::Client, "a/b"),
            (Modbus, ModbusData, End::Client, "\x00\x01"),
            (Dnp3, Dnp3Data, End::Client, "\x40\x02abcdefghij"),
            (Enip, EnipProductName, End::Server, "1756"),
            (Enip, EnipServiceName, End::Server, "Comm"),
            (Tftp, TftpFile, End::Client, "../passwd"),
            (Tftp, TftpMode, End::Client, "netascii"),
            (Pgsql, PgsqlQuery, End::Client, "DROP"),
            (Rfb, RfbName, End::Server, "hacked"),
            (WebSocket, WebSocketPayload, End::Server, "cmd"),
            (Http2, HttpUri, End::Client, "/evil"),
            (Http2, HttpResponseBody, End::Server, "evil"),
            (Http2, Http2HeaderName, End::Client, "x-evil"),
            (DceRpc, DceStubData, End::Server, "stub"),
        ];
        for (application, buffer, from, text) in cases {
            let mut parts = Parts::default();
            parts.push(*buffer, *from, Octets::of(*text, Origin::Option(7)));
            let all = sent(*application, &parts, *from);
            assert!(
                contains(all.bytes(), text.as_bytes()),
                "{application:?} {buffer:?}: {:?}",
                all.bytes()
            );
            let kept = all.origins().iter().filter(|origin| **origin == Origin::Option(7)).count();
            assert!(kept >= text.len(), "{application:?} {buffer:?}");
            assert!(
                !sent(*application, &parts, from.other()).is_empty(),
                "{application:?} {buffer:?}"
            );
        }
    }

    #[test]
    fn a_payload_has_its_place_in_each_protocol() {
        for application in [
            Krb5,
            Snmp,
            Ldap,
            Nfs,
            Mqtt,
            Modbus,
            Enip,
            Tftp,
            Pgsql,
            Ike,
            Rfb,
            Rdp,
            BitTorrentDht,
            Http2,
            DceRpc,
            Smb,
        ] {
            for from in [End::Client, End::Server] {
                let mut parts = Parts::default();
                parts.push(Payload, from, Octets::of("needle", Origin::Option(7)));
                let all = sent(application, &parts, from);
                assert!(
                    contains(all.bytes(), b"needle"),
                    "{application:?} {from:?}: {:?}",
                    all.bytes()
                );
            }
        }
    }

    #[test]
    fn digits_of_ike_are_octets() {
        let mut parts = Parts::default();
        parts.push(IkeVendor, End::Client, "4a131c81070358455c5728f20e95452f".into());
        parts.push(IkeInitiatorSpi, End::Client, "18fe9b731f9f8034".into());
        let all = sent(Ike, &parts, End::Client);
        assert_eq!(all.bytes()[..8], [0x18, 0xfe, 0x9b, 0x73, 0x1f, 0x9f, 0x80, 0x34]);
        assert!(all.bytes().ends_with(&[0x0e, 0x95, 0x45, 0x2f]));
        assert_eq!(all.len(), u32::from_be_bytes(all.bytes()[24..28].try_into().unwrap()) as usize);
        parts.push(IkeResponderSpi, End::Client, "no".into());
        assert!(assemble(Ike, &parts).is_err());
    }

    #[test]
    fn required_numbers_are_in_the_message() {
        let message = |test| Parts { tests: vec![test], ..Parts::default() };
        let one = Numbers::one;
        let krb5 = sent(Krb5, &message(ApplicationTest::Krb5MessageType(one(12))), End::Client);
        assert_eq!(krb5.bytes()[0], 0x6c);
        let snmp = sent(Snmp, &message(ApplicationTest::SnmpPduType(one(5))), End::Client);
        assert!(contains(snmp.bytes(), b"public\xa5"));
        let ldap =
            sent(Ldap, &message(ApplicationTest::LdapResponseOperation(one(1))), End::Server);
        assert_eq!(ldap.bytes()[5], 0x61);
        let nfs = sent(Nfs, &message(ApplicationTest::NfsProcedure(one(12))), End::Client);
        assert!(contains(nfs.bytes(), &[0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 12]));
        let mqtt = sent(Mqtt, &message(ApplicationTest::MqttType(one(6))), End::Client);
        assert!(contains(mqtt.bytes(), &[0x62, 2, 0, 10]));
        let rfb = sent(Rfb, &message(ApplicationTest::RfbSecurityType(one(2))), End::Server);
        assert!(contains(rfb.bytes(), &[1, 2, 0x5c]));
        assert!(assemble(Krb5, &message(ApplicationTest::Krb5MessageType(one(29)))).is_err());
    }

    #[test]
    fn over_tcp_a_length_comes_first() {
        let parts =
            Parts { style: Style { over_tcp: true, ..Style::default() }, ..Parts::default() };
        let turns = assemble(Krb5, &parts).unwrap();
        let bytes = turns[0].octets.bytes();
        assert_eq!(u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len() - 4);
        let turns = assemble(Nfs, &parts).unwrap();
        assert_eq!(turns[0].octets.bytes()[0], 0x80);
    }
}
