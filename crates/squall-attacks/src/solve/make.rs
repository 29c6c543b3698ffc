//! Makes a conversation for one rule with one strategy: lays out its buffers, assembles messages,
//! sets headers.

use squall_rules::{
    Application, ApplicationTest, Buffer, End, Inspection, Numbers, Operation, Rule,
};

use super::expression::Expressions;
use super::formed::{self, Form, MessageFormat};
use super::layout::{self, BufferSpec, Failed, Layout, lay_out};
use super::packet::{self, Headers};
use super::rng::Rng;
use super::{Reason, mixed, plan, transform};
use crate::assemble::{Parts, assemble};
use crate::{Octets, Origin, Transport, Turn};

/// A conversation made for a rule, without addresses.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub transport: Transport,
    pub application: Option<Application>,
    pub turns: Vec<Turn>,
    pub same_address: bool,
    pub ip_version: Option<u8>,
    pub strategy: String,
}

/// The reason why a strategy failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MakeError {
    pub reason: Reason,
    pub option: Option<u16>,
    pub text: String,
}

/// A strategy for making a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strategy {
    /// The protocol. `None`: plain octets.
    pub application: Option<Application>,
    /// Where the contents of the payload are placed in messages.
    pub place: mixed::Place,
    /// Variant of the layout.
    pub attempt: u32,
    /// Index of the form of a [`formed::message_format`] protocol on which to place plain octets.
    pub form: Option<usize>,
}

/// Strategies to try, in order.
pub(super) fn strategies(rule: &Rule) -> Vec<Strategy> {
    let applications = plan::applications(rule);
    let payload = rule.inspections.iter().any(|inspection| plan::is_payload(inspection.buffer));
    let mut strategies = vec![];
    if applications.is_empty() {
        strategies.push(Strategy {
            application: None,
            place: mixed::Place::Verbatim,
            attempt: 0,
            form: None,
        });
    }
    for &application in &applications {
        for &place in mixed::places(application, payload, plan::sender(rule)) {
            strategies.push(Strategy {
                application: Some(application),
                place,
                attempt: 0,
                form: None,
            });
        }
    }
    strategies
}

/// Strategies that send plain octets as a message of the protocol on the rule's port.
pub(super) fn formed_strategies(rule: &Rule, sample: u32) -> Vec<Strategy> {
    if !plan::applications(rule).is_empty()
        || !rule.inspections.iter().any(|i| plan::is_payload(i.buffer))
    {
        return vec![];
    }
    let mut rng = Rng::new(0);
    let Ok(headers) = packet::headers(rule, &mut rng, 0) else { return vec![] };
    let Some(format) = formed::message_format(rule, packet::transport(rule, &headers)) else {
        return vec![];
    };
    let forms = format.forms(plan::sender(rule)).len();
    // Keep the positions that the layout prefers. Samples differ only in free octets.
    let strategy = |form| Strategy {
        application: None,
        place: mixed::Place::Verbatim,
        attempt: sample,
        form: Some(form),
    };
    (0..forms).map(strategy).collect()
}

pub(super) struct Maker<'m> {
    pub rule: &'m Rule,
    pub expressions: &'m Expressions,
    pub rng: Rng,
    pub sample: u32,
    pub budget: &'m mut u64,
}

impl Maker<'_> {
    pub(super) fn make(&mut self, strategy: Strategy) -> Result<Conversation, MakeError> {
        let headers =
            packet::headers(self.rule, &mut self.rng, self.sample).map_err(|(option, text)| {
                MakeError { reason: Reason::Contradiction, option: Some(option), text }
            })?;
        let transport = packet::transport(self.rule, &headers);
        let turns = match strategy.application {
            None => self.verbatim(&headers, transport, strategy)?,
            Some(application) => self.messages(application, transport, strategy)?,
        };
        let mut conversation = Conversation {
            transport,
            application: strategy.application,
            turns,
            same_address: headers.same_address,
            ip_version: headers.ip_version,
            strategy: match strategy.application {
                Some(application) => format!("{application}, {}", strategy.place),
                None if strategy.form.is_some() => "octets in a message".into(),
                None => "octets alone".into(),
            },
        };
        if transport == Transport::Udp
            && matches!(self.rule.header.protocol, squall_rules::Protocol::Tcp)
        {
            conversation.transport = Transport::Tcp;
        }
        let sender = plan::sender(self.rule);
        self.shape(&mut conversation, &headers, sender);
        if conversation.application.is_none()
            && conversation.transport == Transport::Tcp
            && self.rule.application.iter().any(|test| wants_unknown(&test.is))
        {
            self.end_detection(&mut conversation, strategy.attempt, sender);
        }
        Ok(conversation)
    }

    /// A payload of plain octets.
    fn verbatim(
        &mut self,
        headers: &Headers,
        transport: Transport,
        strategy: Strategy,
    ) -> Result<Vec<Turn>, MakeError> {
        let rule = self.rule;
        let format = formed::message_format(rule, transport);
        let form: Option<Form> = match (strategy.form, format) {
            (Some(form), Some(format)) => {
                let forms = format.forms(plan::sender(rule));
                Some(forms.into_iter().nth(form).ok_or_else(|| not_formed(format))?)
            }
            _ => None,
        };
        let mut octets = Octets::new();
        let mut of_headers = vec![];
        let mut variables = vec![];
        let mut wanted = false;
        for (index, inspection) in rule.inspections.iter().enumerate() {
            if plan::is_header(inspection.buffer) {
                let layout = self.lay_out(
                    index,
                    inspection,
                    Numbers::any(),
                    Octets::new(),
                    &variables,
                    strategy.attempt,
                )?;
                variables = layout.variables;
                of_headers.push((inspection.buffer, layout.octets));
            }
        }
        let mut size = headers.size.clone();
        for (buffer, octets) in &of_headers {
            // UDP's length field includes the header of eight octets.
            if *buffer == Buffer::UdpHeader
                && octets.len() >= 6
                && octets.origins()[4..6].iter().any(|origin| *origin != Origin::Free)
            {
                let length = u16::from_be_bytes([octets.bytes()[4], octets.bytes()[5]]);
                let payload = Numbers::one(length.saturating_sub(8).into());
                size = Some(size.map_or(payload.clone(), |size| size.intersection(&payload)));
            }
        }
        for (index, inspection) in rule.inspections.iter().enumerate() {
            if plan::is_payload(inspection.buffer) {
                wanted = true;
                let size = size.clone().unwrap_or_else(Numbers::any);
                // Snort's raw and decoded payload are the same here, so the second inspection
                // continues the octets of the first.
                let form = form.as_ref().filter(|_| octets.is_empty());
                let layout = self.lay_upon(
                    index,
                    inspection,
                    size,
                    octets.clone(),
                    form,
                    &variables,
                    strategy.attempt,
                )?;
                variables = layout.variables;
                octets = layout.octets;
            } else if plan::is_header(inspection.buffer) {
                continue;
            } else if inspection.buffer != Buffer::Base64Data {
                return Err(MakeError {
                    reason: Reason::UnsupportedBuffer,
                    option: inspection.steps.first().map(|step| step.option),
                    text: format!(
                        "messages with buffer {} are not supported",
                        inspection.buffer.name()
                    ),
                });
            }
        }
        if !wanted && let Some(sizes) = &size {
            let size = sizes.first().filter(|&size| size <= 65_000).ok_or(MakeError {
                reason: Reason::Contradiction,
                option: None,
                text: "no payload can have this size".into(),
            })?;
            octets = Octets::of(self.rng.letters(size as usize), Origin::Free);
        }
        if let Some(format) = format.filter(|_| form.is_some()) {
            octets = format
                .close(plan::sender(rule), octets)
                .filter(|octets| {
                    size.as_ref().is_none_or(|size| size.contains(octets.len() as u64))
                })
                .ok_or_else(|| not_formed(format))?;
        }
        let mut shape_from_headers = crate::Shape::default();
        for (buffer, octets) in &of_headers {
            from_header(&mut shape_from_headers, *buffer, octets);
        }
        if let Some(call) = headers.rpc {
            let tcp = matches!(transport, Transport::Tcp);
            let option = rule
                .packet
                .iter()
                .find(|test| matches!(test.is, squall_rules::PacketTest::Rpc { .. }));
            let origin = option.map_or(Origin::Framing, |test| Origin::Option(test.option));
            octets = self.rpc(call, tcp, octets, origin);
        }
        if octets.is_empty() && headers.size.is_none() {
            match transport {
                // Any payload matches a rule without contents.
                Transport::Tcp | Transport::Udp => {
                    octets = Octets::of(self.rng.letters(16), Origin::Free)
                }
                Transport::Icmp => octets = Octets::of(self.rng.letters(32), Origin::Free),
                Transport::Ip(_) => octets = Octets::of(self.rng.letters(24), Origin::Free),
                Transport::Segments => {}
            }
        }
        let mut turn = Turn::new(plan::sender(rule), octets);
        turn.shape = shape_from_headers;
        Ok(vec![turn])
    }

    /// An ONC RPC call that carries the contents' octets, unless these already form a call.
    fn rpc(&mut self, call: (u32, u32, u32), tcp: bool, octets: Octets, origin: Origin) -> Octets {
        let conversation = packet::rpc_call(call, &mut self.rng, tcp, &[]);
        let mut all = Octets::of(conversation, origin);
        // Keep the contents' octets and complete the call around them.
        for at in 0..octets.len() {
            let (byte, of) = (octets.bytes()[at], octets.origins()[at]);
            if at < all.len() {
                if of != Origin::Free {
                    all.set(at, byte, of);
                }
            } else {
                all.push(byte, of);
            }
        }
        all
    }

    /// Messages of a protocol.
    fn messages(
        &mut self,
        application: Application,
        transport: Transport,
        strategy: Strategy,
    ) -> Result<Vec<Turn>, MakeError> {
        let rule = self.rule;
        let sender = plan::sender(rule);
        let over_tcp = transport == Transport::Tcp;
        let mut parts = Parts {
            tests: rule.application.iter().map(|test| test.is.clone()).collect(),
            style: crate::assemble::Style {
                over_tcp,
                ..crate::assemble::Style::nth(strategy.attempt)
            },
            ..Parts::default()
        };
        let mut payload: Vec<(usize, &Inspection)> = vec![];
        let mut variables: Vec<Option<u64>> = vec![];
        let leads = match strategy.place {
            mixed::Place::Lead => {
                let of_payload = rule
                    .inspections
                    .iter()
                    .filter(|inspection| plan::is_payload(inspection.buffer));
                mixed::Split::of(self, of_payload, sender)
            }
            _ => mixed::Split::default(),
        };
        let one_uri = if strategy.attempt % 4 == 2 { one_uri(rule) } else { None };
        for (index, inspection) in rule.inspections.iter().enumerate() {
            let inspection = match &one_uri {
                Some((first, both)) if *first == index => both,
                Some(_) if is_uri(inspection.buffer) => continue,
                _ => inspection,
            };
            let buffer = inspection.buffer;
            if buffer == Buffer::Base64Data || plan::is_header(buffer) {
                continue;
            }
            let end = plan::sender_of(rule, inspection);
            self.exclude(inspection, end, &mut parts);
            if plan::is_payload(buffer) {
                payload.push((index, inspection));
                continue;
            }
            if requires_nothing(inspection) {
                continue;
            }
            if inspection
                .steps
                .iter()
                .any(|step| matches!(step.operation, Operation::Absent { .. }))
            {
                parts.without.push((buffer, end, vec![]));
                continue;
            }
            // In one variant, put the contents of the URI into its query.
            let lead = match buffer {
                Buffer::HttpHeader | Buffer::HttpRawHeader => leads.header.clone(),
                uri if is_uri(uri) && !leads.uri.is_empty() => leads.uri.clone(),
                Buffer::HttpUri if strategy.attempt % 4 == 3 => Octets::of(*b"/?", Origin::Free),
                _ => Octets::new(),
            };
            let layout = self.lay_out(
                index,
                inspection,
                Numbers::any(),
                lead,
                &variables,
                strategy.attempt,
            )?;
            variables = layout.variables;
            let mut octets = layout.octets;
            if buffer == Buffer::HttpUri && octets.origins().first() == Some(&Origin::Free) {
                octets.set(0, b'/', Origin::Free);
            }
            if strategy.attempt == 0 {
                end_open(buffer, &mut octets);
            }
            let before = parts.buffers.iter_mut().find(|(of, by, _)| (*of, *by) == (buffer, end));
            match before {
                // The rule inspects this buffer both unchanged and transformed. In some variants,
                // concatenate both, in either order.
                Some((.., before)) if strategy.attempt % 2 == 1 && is_transformed(rule, buffer) => {
                    let (mut first, second) = match strategy.attempt % 4 {
                        1 => (before.clone(), octets),
                        _ => (octets, before.clone()),
                    };
                    if is_dotted(inspection) {
                        first.push(b'.', Origin::Framing);
                    }
                    first.append(&second);
                    *before = first;
                }
                _ => parts.buffers.push((buffer, end, octets)),
            }
        }
        if payload.is_empty() {
            return assembled(application, &parts);
        }
        let mut mixing = mixed::Mixing { application, sender, parts, place: strategy.place };
        mixing.make(self, &payload, &variables, strategy.attempt)
    }

    /// Records contents that must not occur in the buffer.
    fn exclude(&self, inspection: &Inspection, end: End, parts: &mut Parts) {
        for step in &inspection.steps {
            if let Operation::Content(content) = &step.operation
                && content.negated
            {
                parts.without.push((inspection.buffer, end, content.pattern.clone()));
            }
        }
    }

    /// The octets of one inspection, before transforms.
    pub(super) fn lay_out(
        &mut self,
        index: usize,
        inspection: &Inspection,
        size: Numbers,
        lead: Octets,
        variables: &[Option<u64>],
        attempt: u32,
    ) -> Result<Layout, MakeError> {
        self.lay_upon(index, inspection, size, lead, None, variables, attempt)
    }

    /// Like [`Maker::lay_out`], but on a form of a message.
    #[expect(
        clippy::too_many_arguments,
        reason = "all requirements of a layout, and the inspection"
    )]
    fn lay_upon(
        &mut self,
        index: usize,
        inspection: &Inspection,
        size: Numbers,
        lead: Octets,
        form: Option<&Form>,
        variables: &[Option<u64>],
        attempt: u32,
    ) -> Result<Layout, MakeError> {
        let decoded = self.decoded(index, inspection, attempt)?;
        let dotted = is_dotted(inspection);
        let spec = BufferSpec {
            steps: &inspection.steps,
            size,
            style: style(inspection.buffer),
            decoded,
            lead: if dotted { Octets::framing(*b".") } else { lead },
            form,
            variables: self.rule.variables.len(),
        };
        let mut layout =
            lay_out(&spec, self.expressions, variables, attempt, &mut self.rng, self.budget)
                .map_err(|failed| self.failure(failed))?;
        layout.octets =
            transform::before(&inspection.transforms, layout.octets).map_err(|text| MakeError {
                reason: Reason::UnsupportedOption,
                option: inspection.transforms.first().map(|transform| transform.option),
                text,
            })?;
        Ok(layout)
    }

    /// The data that `base64_decode` of this inspection must produce: that of the next inspection.
    fn decoded(
        &mut self,
        index: usize,
        inspection: &Inspection,
        attempt: u32,
    ) -> Result<Option<Octets>, MakeError> {
        if !inspection.steps.iter().any(|step| matches!(step.operation, Operation::Base64Decode(_)))
        {
            return Ok(None);
        }
        let rule = self.rule;
        let Some((after, of)) = rule
            .inspections
            .iter()
            .enumerate()
            .find(|(after, of)| *after != index && of.buffer == Buffer::Base64Data)
        else {
            return Ok(None);
        };
        Ok(Some(self.lay_out(after, of, Numbers::any(), Octets::new(), &[], attempt)?.octets))
    }

    pub(super) fn failure(&self, failed: Failed) -> MakeError {
        let text_of = |option: u16| {
            let range = self.rule.options.get(usize::from(option)).cloned().unwrap_or(0..0);
            self.rule.text.get(range).unwrap_or("").chars().take(120).collect::<String>()
        };
        match failed {
            Failed::NoRoom { option } => MakeError {
                reason: Reason::Contradiction,
                option: Some(option),
                text: format!("found no place for {}", text_of(option)),
            },
            Failed::TooLong => MakeError {
                reason: Reason::TooLong,
                option: None,
                text: "tried too many places; allow more steps per rule".into(),
            },
            Failed::Expression { option, text } => MakeError {
                reason: Reason::Expression,
                option: Some(option),
                text: format!("found no text for {}: {text}", text_of(option)),
            },
        }
    }

    /// Applies the required headers to the relevant turn, and inserts the data that must be sent
    /// before it.
    fn shape(&mut self, conversation: &mut Conversation, headers: &Headers, sender: End) {
        let last = conversation.turns.iter().rposition(|turn| turn.from == sender);
        if let Some(last) = last {
            let of_buffers = conversation.turns[last].shape.clone();
            let mut shape = headers.shape.clone();
            shape.ttl = shape.ttl.or(of_buffers.ttl);
            shape.tos = shape.tos.or(of_buffers.tos);
            shape.id = shape.id.or(of_buffers.id);
            shape.flags = shape.flags.or(of_buffers.flags);
            shape.window = shape.window.or(of_buffers.window);
            shape.sequence = shape.sequence.or(of_buffers.sequence);
            shape.acknowledgment = shape.acknowledgment.or(of_buffers.acknowledgment);
            shape.icmp_type = shape.icmp_type.or(of_buffers.icmp_type);
            shape.icmp_code = shape.icmp_code.or(of_buffers.icmp_code);
            shape.icmp_id = shape.icmp_id.or(of_buffers.icmp_id);
            shape.icmp_sequence = shape.icmp_sequence.or(of_buffers.icmp_sequence);
            shape.whole |= of_buffers.whole;
            if conversation.transport == Transport::Icmp {
                let is_v6 = self.rule.header.protocol == squall_rules::Protocol::Icmp6;
                shape.icmp_type = shape.icmp_type.or(Some(if is_v6 { 128 } else { 8 }));
            }
            conversation.turns[last].shape = shape;
        }
        let mut before = vec![];
        for (end, sent) in [(End::Client, headers.sent[0]), (End::Server, headers.sent[1])] {
            if sent > 0 {
                before.push(Turn::new(
                    end,
                    Octets::of(self.rng.letters(sent as usize), Origin::Free),
                ));
            }
        }
        for (end, packets) in [(End::Client, headers.packets[0]), (End::Server, headers.packets[1])]
        {
            for _ in 0..packets {
                before.push(Turn::new(end, Octets::of(self.rng.letters(8), Origin::Free)));
            }
        }
        if conversation.application.is_none() {
            // In a flow without a connection, the first sender is the client.
            let datagrams = matches!(conversation.transport, Transport::Udp | Transport::Icmp);
            let answered = self.rule.flow.established == Some(true);
            if datagrams && (sender == End::Server || answered) {
                before.push(self.hello(End::Client, &conversation.turns));
                if answered && sender == End::Client {
                    before.push(self.hello(End::Server, &conversation.turns));
                }
            }
        }
        conversation.turns.splice(0..0, before);
    }

    /// Makes both ends send enough data for the engine to give up protocol detection, because
    /// `app-layer-protocol` matches nothing until then.
    fn end_detection(&mut self, conversation: &mut Conversation, attempt: u32, sender: End) {
        let both = [sender, sender.other()]
            .map(|end| Turn::new(end, Octets::of(self.rng.letters(ENOUGH), Origin::Free)));
        // Send it before the data if the rule matches packets, and after it if the rule tests the
        // start of the stream, which is inspected at the end of the connection.
        match attempt.is_multiple_of(2) {
            true => conversation.turns.splice(0..0, both),
            false => conversation.turns.splice(conversation.turns.len().., both),
        };
    }

    /// A datagram without required octets.
    fn hello(&mut self, from: End, turns: &[Turn]) -> Turn {
        let transport = match turns.last() {
            Some(turn) if turn.shape.icmp_type.is_some() => Transport::Icmp,
            _ => Transport::Udp,
        };
        let message =
            formed::message_format(self.rule, transport).and_then(|format| format.hello(from));
        let octets = message.unwrap_or_else(|| Octets::of(self.rng.letters(12), Origin::Free));
        let mut turn = Turn::new(from, octets);
        if let Some(shape) = turns.last().map(|turn| &turn.shape)
            && shape.icmp_type.is_some()
        {
            // A reply needs a request of the same type.
            let (question, answer) = match shape.icmp_type {
                Some(129) | Some(128) => (128, 129),
                _ => (8, 0),
            };
            turn.shape.icmp_type = Some(if from == End::Client { question } else { answer });
            turn.shape.icmp_id = shape.icmp_id;
            turn.shape.icmp_sequence = shape.icmp_sequence;
        }
        turn
    }
}

/// Completes a buffer that may end early: an unfinished escape in a form, or the fields of a call.
fn end_open(buffer: Buffer, octets: &mut Octets) {
    match buffer {
        Buffer::HttpRequestBody if octets.bytes().ends_with(b"%") => {
            octets.extend(b"20", Origin::Free)
        }
        // Null pointers and zero sizes.
        Buffer::DceStubData => octets.extend(&[0; 64], Origin::Free),
        _ => {}
    }
}

fn not_formed(format: MessageFormat) -> MakeError {
    MakeError {
        reason: Reason::NotVerified,
        option: None,
        text: format!("found no well-formed {format} message for it"),
    }
}

fn is_dotted(inspection: &Inspection) -> bool {
    let last = inspection.transforms.last();
    last.is_some_and(|last| last.is == squall_rules::Transform::DotPrefix)
}

fn is_transformed(rule: &Rule, buffer: Buffer) -> bool {
    let mut of_buffer = rule.inspections.iter().filter(|of| of.buffer == buffer);
    of_buffer.any(|inspection| !inspection.transforms.is_empty())
}

/// Octets from each end after which engines stop detection, except on ports that belong to a
/// protocol.
const ENOUGH: usize = 64;

/// Whether the rule requires that no protocol, or another one, was detected.
fn wants_unknown(test: &ApplicationTest) -> bool {
    match test {
        ApplicationTest::Protocol { is, negated } => *negated || is.is_none(),
        _ => false,
    }
}

pub(super) fn assembled(application: Application, parts: &Parts) -> Result<Vec<Turn>, MakeError> {
    assemble(application, parts).map_err(|impossible| MakeError {
        reason: Reason::UnsupportedBuffer,
        option: None,
        text: impossible.0,
    })
}

fn is_uri(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::HttpUri | Buffer::HttpRawUri)
}

/// If a URI has no escapes, its raw and normalized forms are equal. Merges the tests of both
/// buffers into one inspection, which replaces the first. `None` if only one buffer is tested or
/// there are transforms.
fn one_uri(rule: &Rule) -> Option<(usize, Inspection)> {
    let uris =
        || rule.inspections.iter().enumerate().filter(|(_, inspection)| is_uri(inspection.buffer));
    let has = |buffer| uris().any(|(_, inspection)| inspection.buffer == buffer);
    let plain =
        uris().all(|(_, inspection)| inspection.transforms.is_empty() && inspection.part.is_none());
    let (first, of) =
        uris().next().filter(|_| plain && has(Buffer::HttpUri) && has(Buffer::HttpRawUri))?;
    let steps = uris().flat_map(|(_, inspection)| inspection.steps.iter().cloned()).collect();
    Some((first, Inspection { buffer: Buffer::HttpRawUri, steps, ..of.clone() }))
}

/// Whether all tests are negated, so a default message passes them.
fn requires_nothing(inspection: &Inspection) -> bool {
    inspection.steps.iter().all(|step| match &step.operation {
        Operation::Content(content) => content.negated,
        Operation::Pcre(pcre) => pcre.negated,
        Operation::IsDataAt(at) => at.negated,
        Operation::Dataset { is_set, .. } => !is_set,
        _ => false,
    })
}

fn style(buffer: Buffer) -> layout::Style {
    use Buffer::*;
    match buffer {
        HttpHeader | HttpRawHeader | HttpStart | HttpTrailer | SipHeader => layout::Style::Lines,
        Payload | RawPayload | FileData | HttpRequestBody | HttpResponseBody | Base64Data
        | DceStubData => layout::Style::Plain,
        _ => layout::Style::Text,
    }
}

/// Header fields that buffers such as `tcp.hdr` require.
fn from_header(shape: &mut crate::Shape, buffer: Buffer, octets: &Octets) {
    let required =
        |at: usize| octets.origins().get(at).is_some_and(|origin| *origin != Origin::Free);
    let byte = |at: usize| octets.bytes().get(at).copied().unwrap_or(0);
    let word = |at: usize| u16::from_be_bytes([byte(at), byte(at + 1)]);
    let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    match buffer {
        Buffer::Ipv4Header => {
            if required(1) {
                shape.tos = Some(byte(1));
            }
            if required(4) || required(5) {
                shape.id = Some(word(4));
            }
            if required(8) {
                shape.ttl = Some(byte(8));
            }
            if required(6) {
                shape.fragment_bits = Some(byte(6) >> 5);
            }
        }
        Buffer::Ipv6Header if required(7) => shape.ttl = Some(byte(7)),
        Buffer::TcpHeader => {
            if required(4) || required(7) {
                shape.sequence = Some(long(4));
            }
            if required(8) || required(11) {
                shape.acknowledgment = Some(long(8));
            }
            if required(13) {
                shape.flags = Some(byte(13));
            }
            if required(14) || required(15) {
                shape.window = Some(word(14));
            }
        }
        Buffer::Icmp4Header | Buffer::Icmp6Header => {
            if required(0) {
                shape.icmp_type = Some(byte(0));
            }
            if required(1) {
                shape.icmp_code = Some(byte(1));
            }
            if required(4) || required(5) {
                shape.icmp_id = Some(word(4));
            }
            if required(6) || required(7) {
                shape.icmp_sequence = Some(word(6));
            }
        }
        _ => {}
    }
}
