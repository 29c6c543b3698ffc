//! MQTT 3.1 to 5.0 (OASIS). Each message is a transaction.

use squall_rules::{Buffer, End};

use super::octets::{Octets, Records};
use super::{Reader, Transaction, number};

// Bounds on memory for untrusted traffic.
const MAX_TRANSACTIONS: usize = 1024;
const MAX_TOPICS: usize = 100;
/// Suricata's `max-msg-length`.
const MAX_LEN: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Mqtt {
    sides: [Records; 2],
    opened: usize,
    /// Version in CONNECT. Versions from 5 on have properties.
    version: u8,
}

impl Reader for Mqtt {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = usize::from(from == End::Server);
        self.sides[side].push(octets);
        while let Some(message) = self.sides[side].next(MAX_LEN, message_length) {
            if self.opened >= MAX_TRANSACTIONS {
                continue;
            }
            self.opened += 1;
            let mut transaction = Transaction { done: [true, true], ..Transaction::default() };
            // Fields parsed before the message ends or becomes invalid are kept.
            let _ = self.read(from, &message, &mut transaction);
            transactions.push(transaction);
        }
    }

    fn end(&mut self, _: End, _: &mut Vec<Transaction>) {}
}

fn message_length(octets: &[u8]) -> Option<usize> {
    let mut rest = Octets(octets.get(1..)?);
    let before = rest.len();
    let length = variable(&mut rest)?;
    Some(1 + before - rest.len() + length)
}

/// A variable byte integer: up to four octets, all but the last with the highest bit set.
fn variable(rest: &mut Octets<'_>) -> Option<usize> {
    let mut value = 0;
    for index in 0..4 {
        let octet = rest.u8()?;
        value |= usize::from(octet & 0x7f) << (7 * index);
        if octet & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

impl Mqtt {
    fn read(&mut self, from: End, message: &[u8], transaction: &mut Transaction) -> Option<()> {
        let mut rest = Octets(message);
        let first = rest.u8()?;
        variable(&mut rest)?;
        let kind = first >> 4;
        let mut add_buffer = |buffer: Buffer, octets: &[u8]| {
            if !octets.is_empty() {
                transaction.buffers.push((buffer, from, octets.to_vec()));
            }
        };
        let mut facts = vec![
            ("mqtt.type", u64::from(kind)),
            ("mqtt.qos", u64::from(first >> 1 & 3)),
            // Only DUP and RETAIN.
            ("mqtt.flags", u64::from(first & 9)),
        ];
        let mut read = || {
            match kind {
                1 => {
                    rest.counted_u16()?;
                    self.version = rest.u8()?;
                    let flags = rest.u8()?;
                    facts.push(("mqtt.connect.flags", u64::from(flags)));
                    rest.skip(2)?;
                    self.properties(&mut rest)?;
                    add_buffer(Buffer::MqttClientId, rest.counted_u16()?);
                    if flags & 4 != 0 {
                        self.properties(&mut rest)?;
                        add_buffer(Buffer::MqttWillTopic, rest.counted_u16()?);
                        add_buffer(Buffer::MqttWillMessage, rest.counted_u16()?);
                    }
                    if flags & 0x80 != 0 {
                        add_buffer(Buffer::MqttUserName, rest.counted_u16()?);
                    }
                    if flags & 0x40 != 0 {
                        add_buffer(Buffer::MqttPassword, rest.counted_u16()?);
                    }
                }
                2 => {
                    facts.push(("mqtt.connack.session_present", u64::from(rest.u8()? & 1)));
                    let code = u64::from(rest.u8()?);
                    facts.extend(
                        ["mqtt.connack.return_code", "mqtt.connack.returncode", "mqtt.reason_code"]
                            .map(|what| (what, code)),
                    );
                }
                3 => {
                    add_buffer(Buffer::MqttPublishTopic, rest.counted_u16()?);
                    if first & 6 != 0 {
                        rest.skip(2)?;
                    }
                    self.properties(&mut rest)?;
                    add_buffer(Buffer::MqttPublishMessage, rest.0);
                }
                8 | 10 => {
                    let (buffer, after) = if kind == 8 {
                        (Buffer::MqttSubscribeTopic, 1)
                    } else {
                        (Buffer::MqttUnsubscribeTopic, 0)
                    };
                    rest.skip(2)?;
                    self.properties(&mut rest)?;
                    for _ in 0..MAX_TOPICS {
                        add_buffer(buffer, rest.counted_u16()?);
                        rest.skip(after)?;
                    }
                }
                4..=7 => {
                    rest.skip(2)?;
                    facts.push(("mqtt.reason_code", u64::from(rest.u8()?)));
                }
                14 | 15 => facts.push(("mqtt.reason_code", u64::from(rest.u8()?))),
                _ => {}
            }
            Some(())
        };
        let understood = read();
        if self.version > 0 {
            facts.push(("mqtt.protocol_version", u64::from(self.version)));
        }
        for (what, value) in facts {
            number(from, what, value, transaction);
        }
        understood
    }

    fn properties(&self, rest: &mut Octets<'_>) -> Option<()> {
        if self.version < 5 {
            return Some(());
        }
        let length = variable(rest)?;
        rest.skip(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(first: u8, body: &[u8]) -> Vec<u8> {
        [&[first, body.len() as u8][..], body].concat()
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let stream = [
            message(0x10, b"\0\x04MQTT\x04\xc6\0\x3c\0\x02id\0\x01t\0\x01m\0\x04user\0\x04pass"),
            message(0x32, b"\0\x03a/b\0\x01payload"),
            message(0x82, b"\0\x02\0\x03c/d\0\0\x01e\x01"),
        ]
        .concat();
        for size in [1, 5, 1000] {
            let (mut reader, mut transactions) = (Mqtt::default(), vec![]);
            for piece in stream.chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            let found: Vec<String> = transactions
                .iter()
                .flat_map(|transaction| &transaction.buffers)
                .map(|(buffer, _, octets)| {
                    format!("{buffer:?} {}", String::from_utf8_lossy(octets))
                })
                .collect();
            assert_eq!(
                found,
                [
                    "MqttClientId id",
                    "MqttWillTopic t",
                    "MqttWillMessage m",
                    "MqttUserName user",
                    "MqttPassword pass",
                    "MqttPublishTopic a/b",
                    "MqttPublishMessage payload",
                    "MqttSubscribeTopic c/d",
                    "MqttSubscribeTopic e",
                ]
            );
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(first in any::<u8>(), body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let (mut reader, mut transactions) = (Mqtt::default(), vec![]);
            reader.receive(End::Client, &message(first, &body), &mut transactions);
            reader.receive(End::Client, &body, &mut transactions);
        }
    }
}
