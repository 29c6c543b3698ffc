//! MQTT 3.1.1 and 5 (OASIS).

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Control packet types (OASIS MQTT 5.0 §2.1.2).
const CONNECT: u8 = 1;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;
const UNSUBSCRIBE: u8 = 10;

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let kind = number(
        parts,
        |test| match test {
            ApplicationTest::MqttType(numbers) => Some(numbers),
            _ => None,
        },
        &[PUBLISH.into(), CONNECT.into()],
        15,
    )?
    .map(|kind| kind as u8);
    let reason = other(parts, "mqtt.reason_code", &[0], 255)?;
    let usual = if kind == Some(15) || reason.is_some_and(|reason| reason > 0) { 5 } else { 4 };
    let newest =
        other(parts, "mqtt.protocol_version", &[usual, 4, 5, 3], 5)?.unwrap_or(usual) as u8;
    let dialog = Dialog {
        parts,
        version: newest,
        qos: other(parts, "mqtt.qos", &[0, 1], 2)?.unwrap_or(0) as u8,
        reason: reason.unwrap_or(0) as u8,
        flags: other(parts, "mqtt.flags", &[0, 1, 8, 9], 9)?.unwrap_or(0) as u8,
    };
    let client = End::Client;
    let server = End::Server;
    let mut turns =
        vec![Turn::new(client, dialog.connect()?), Turn::new(server, dialog.connected()?)];
    let subscribes = parts.all(Buffer::MqttSubscribeTopic, client).next().is_some()
        || matches!(kind, Some(8 | 9));
    let unsubscribes = parts.all(Buffer::MqttUnsubscribeTopic, client).next().is_some()
        || matches!(kind, Some(10 | 11));
    if subscribes {
        turns.push(Turn::new(client, dialog.subscribe(Buffer::MqttSubscribeTopic, SUBSCRIBE)?));
        turns.push(Turn::new(server, dialog.granted(9, 1)?));
    }
    if unsubscribes {
        turns.push(Turn::new(client, dialog.subscribe(Buffer::MqttUnsubscribeTopic, UNSUBSCRIBE)?));
        turns.push(Turn::new(server, dialog.granted(11, usize::from(dialog.version == 5))?));
    }
    for from in [client, server] {
        let named = [Buffer::MqttPublishTopic, Buffer::MqttPublishMessage];
        let payload = payload(parts, from);
        let required =
            from == client && (matches!(kind, Some(PUBLISH | 4..=7)) || dialog.flags != 0);
        if !required
            && payload.is_none()
            && named.into_iter().all(|buffer| parts.get(buffer, from).is_none())
        {
            continue;
        }
        let qos = match kind {
            Some(4) => 1,
            Some(5..=7) => 2,
            _ => dialog.qos,
        };
        turns.push(Turn::new(from, dialog.publish(from, qos, payload)?));
        let answers: &[(End, u8)] = match qos {
            0 => &[],
            1 => &[(from.other(), 0x40)],
            _ => &[(from.other(), 0x50), (from, 0x62), (from.other(), 0x70)],
        };
        for (end, first) in answers {
            let reason: &[u8] =
                if dialog.version == 5 && dialog.reason > 0 { &[dialog.reason] } else { &[] };
            turns.push(Turn::new(*end, packet(*first, Fields::new().be16(10).raw(reason))?));
        }
    }
    match kind {
        Some(12 | 13) => {
            turns.push(Turn::new(client, Octets::from(&[0xc0, 0])));
            turns.push(Turn::new(server, Octets::from(&[0xd0, 0])));
        }
        Some(15) => {
            let method = Fields::of(&[0x15]).counted_be16(&"SCRAM".into())?.done();
            let body =
                Fields::of(&[dialog.reason.max(0x18)]).byte(method.len() as u8).part(&method);
            turns.push(Turn::new(client, packet(0xf0, body)?));
        }
        _ => {}
    }
    let reason: &[u8] =
        if dialog.version == 5 && dialog.reason > 0 { &[dialog.reason] } else { &[] };
    turns.push(Turn::new(client, packet(0xe0, Fields::of(reason))?));
    Ok(turns)
}

struct Dialog<'p> {
    parts: &'p Parts,
    version: u8,
    qos: u8,
    reason: u8,
    flags: u8,
}

impl Dialog<'_> {
    fn part(&self, buffer: Buffer) -> Option<&Octets> {
        self.parts.get(buffer, End::Client)
    }

    /// An empty list of properties, if the version has properties.
    fn properties(&self) -> Fields {
        if self.version == 5 { Fields::of(&[0]) } else { Fields::new() }
    }

    fn connect(&self) -> Result<Octets, Impossible> {
        let (user, password) = (self.part(Buffer::MqttUserName), self.part(Buffer::MqttPassword));
        let (topic, message) =
            (self.part(Buffer::MqttWillTopic), self.part(Buffer::MqttWillMessage));
        let mut flags = other(self.parts, "mqtt.connect.flags", &[2], 255)?.unwrap_or(2) as u8;
        if topic.is_some() || message.is_some() {
            flags |= 4;
        }
        if user.is_some() || password.is_some() && self.version < 5 {
            flags |= 128;
        }
        if password.is_some() {
            flags |= 64;
        }
        let name: &[u8] = if self.version == 3 { b"\0\x06MQIsdp" } else { b"\0\x04MQTT" };
        let usual = Octets::from("client");
        let mut body = Fields::of(name)
            .byte(self.version)
            .byte(flags)
            .be16(60)
            .fields(self.properties())
            .counted_be16(self.part(Buffer::MqttClientId).unwrap_or(&usual))?;
        if flags & 4 != 0 {
            body =
                body.fields(self.properties()).counted_be16(topic.unwrap_or(&"status".into()))?;
            body = body.counted_be16(message.unwrap_or(&"gone".into()))?;
        }
        if flags & 128 != 0 {
            body = body.counted_be16(user.unwrap_or(&"user".into()))?;
        }
        if flags & 64 != 0 {
            body = body.counted_be16(password.unwrap_or(&"secret".into()))?;
        }
        packet(CONNECT << 4, body)
    }

    fn connected(&self) -> Result<Octets, Impossible> {
        let present = other(self.parts, "mqtt.connack.session_present", &[0], 1)?.unwrap_or(0);
        let code = other(self.parts, "mqtt.connack.return_code", &[0], 255)?;
        let code = code.or(other(self.parts, "mqtt.connack.returncode", &[0], 255)?);
        let code = code.unwrap_or(self.reason.into());
        packet(CONNACK << 4, Fields::of(&[present as u8, code as u8]).fields(self.properties()))
    }

    fn subscribe(&self, buffer: Buffer, kind: u8) -> Result<Octets, Impossible> {
        let mut body = Fields::new().be16(10).fields(self.properties());
        let mut topics: Vec<Octets> = self.parts.all(buffer, End::Client).cloned().collect();
        if topics.is_empty() {
            topics.push("sensors/#".into());
        }
        for topic in &topics {
            body = body.counted_be16(topic)?;
            if kind == SUBSCRIBE {
                body = body.byte(self.qos);
            }
        }
        packet(kind << 4 | 2, body)
    }

    fn granted(&self, kind: u8, least: usize) -> Result<Octets, Impossible> {
        let topics =
            if kind == 9 { Buffer::MqttSubscribeTopic } else { Buffer::MqttUnsubscribeTopic };
        let count = self.parts.all(topics, End::Client).count().max(1) * least;
        let body = Fields::new().be16(10).fields(self.properties());
        packet(kind << 4, body.raw(&vec![self.reason; count]))
    }

    fn publish(&self, from: End, qos: u8, payload: Option<Octets>) -> Result<Octets, Impossible> {
        let topic = self
            .parts
            .get(Buffer::MqttPublishTopic, from)
            .cloned()
            .unwrap_or_else(|| "sensors/1".into());
        let message = self.parts.get(Buffer::MqttPublishMessage, from).cloned().or(payload);
        let mut body = Fields::new().counted_be16(&topic)?;
        if qos > 0 {
            body = body.be16(10);
        }
        body = body.fields(self.properties()).part(&message.unwrap_or_else(|| "21.5".into()));
        packet(PUBLISH << 4 | self.flags | qos << 1, body)
    }
}

/// A packet. Its remaining length has seven bits per octet (§2.1.4).
fn packet(first: u8, body: Fields) -> Result<Octets, Impossible> {
    let mut length = fits(body.len(), 1 << 20)?;
    let mut header = Fields::of(&[first]);
    while length >= 128 {
        header = header.byte(length as u8 | 0x80);
        length >>= 7;
    }
    Ok(header.byte(length as u8).fields(body).done())
}
