//! The flows of a trial: the flows of the profile with the load of the trial.

use std::time::{SystemTime, UNIX_EPOCH};

use squall_method::{Bulk, Dns, FlowLoad, Http, Kept, MethodError};
use squall_profile::{
    Arrival, FlowContent, Flows, Located, Play, Ramp, Spacing, Template, Transport,
};
use squall_units::Nanos;

/// Adapts the profile's flows to one trial.
pub(crate) fn loaded(
    flows: &Flows,
    load: &FlowLoad,
    duration_s: f64,
) -> Result<Flows, MethodError> {
    let mut flows = Flows { limit: load.limit, ..flows.clone() };
    if load.http.is_some() || load.kept.is_some() || load.dns.is_some() {
        // HTTP or the exchange replaces the programs that would call these templates.
        flows.templates.retain(|template| template.arrival != Arrival::Called);
        flows.templates.truncate(1);
    }
    for template in &mut flows.templates {
        load.http.iter().for_each(|http| speaks_http(template, *http));
        load.kept.iter().for_each(|kept| is_kept(template, *kept));
        load.dns.iter().for_each(|dns| asks_for_aaaa(template, dns));
    }
    if let Some(bulk) = load.bulk {
        return bulk_transfers(flows, bulk, load);
    }
    let all: f64 = flows.templates.iter().map(|template| template.arrival.amount()).sum();
    for template in &mut flows.templates {
        let share = if all > 0.0 { template.arrival.amount() / all } else { 1.0 };
        let spacing = match template.arrival {
            Arrival::Cps { spacing, .. } | Arrival::Weight { spacing, .. } => spacing,
            _ => Spacing::Constant,
        };
        if template.arrival != Arrival::Called {
            template.arrival = Arrival::Cps { cps: load.cps * share, spacing };
        }
        template.stages.clear();
        (template.limit, template.duration, template.after) = Default::default();
        let settings = load.tcp.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        template.tcp.settings.extend(settings);
    }
    if flows.templates.is_empty() {
        return Err(MethodError::Usage("the profile has no template of flows".into()));
    }
    flows.target = None;
    let hold_s = duration_s - load.ramp_up_s - load.ramp_down_s;
    flows.ramp = Ramp {
        up: Nanos::from_secs_f64(load.ramp_up_s),
        hold: Some(Nanos::from_secs_f64(hold_s.max(0.0))),
        down: Nanos::from_secs_f64(load.ramp_down_s),
    };
    Ok(flows)
}

/// TCP port of the servers of bulk transfers if the template has none; the next port is that of the
/// other direction. It is the port of iperf, which firewalls of labs often allow.
const BULK_PORT: u16 = 5001;
/// Time within which the connections of one direction open, seconds.
const BULK_OPEN_S: f64 = 0.1;
/// Octets of a message. A connection can have 15 messages in flight; at this size, they reach its
/// limit of 1 MiB. Smaller messages would not fill a long queue.
const BULK_MESSAGE: u32 = 64 << 10;
/// Time for open connections to end after the trial. None of them ends by itself, so each trial
/// would otherwise last for the drain time of the profile.
const BULK_DRAIN: Nanos = Nanos(50_000_000);

/// Returns one template per direction, derived from the first template of the profile.
fn bulk_transfers(mut flows: Flows, bulk: Bulk, load: &FlowLoad) -> Result<Flows, MethodError> {
    flows.templates.retain(|template| template.arrival != Arrival::Called);
    let Some(first) = flows.templates.first().cloned() else {
        return Err(MethodError::Usage("the profile has no template of flows".into()));
    };
    let port = first.listen.unwrap_or(BULK_PORT).min(u16::MAX - 1);
    let message = format!("send \"${{repeat:{BULK_MESSAGE}:x}}\"");
    let sends = ["loop forever", &message, "end"];
    let down = (vec!["send \"x\"", "wait_peer_close"], [&["recv 1"], &sends[..]].concat());
    let up = (sends.to_vec(), vec!["wait_peer_close"]);
    let ways = [("download", bulk.down, port, down), ("upload", bulk.up, port + 1, up)];
    let template = |(name, connections, listen, (client, server)): (&str, u32, u16, _)| {
        let texts = |lines: Vec<&str>| lines.into_iter().map(Located::from).collect();
        let mut template = Template {
            name: name.into(),
            content: FlowContent::Programs {
                client: texts(client),
                server: texts(server),
                messages: Vec::new(),
            },
            arrival: Arrival::Cps {
                cps: f64::from(connections) / BULK_OPEN_S,
                spacing: Spacing::Constant,
            },
            stages: Vec::new(),
            listen: Some(listen),
            transport: Transport::Tcp,
            limit: Some(connections.into()),
            start: Nanos::from_secs_f64(bulk.start_s),
            duration: None,
            after: None,
            data: None,
            tls: None,
            ..first.clone()
        };
        let settings = load.tcp.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        template.tcp.settings.extend(settings);
        template
    };
    flows.templates = ways.into_iter().filter(|(_, n, ..)| *n > 0).map(template).collect();
    (flows.target, flows.limit, flows.ramp) = Default::default();
    flows.drain = Some(BULK_DRAIN);
    Ok(flows)
}

/// Replaces the application of a template with HTTP.
fn speaks_http(template: &mut Template, http: Http) {
    let scheme = if http.tls { "https" } else { "http" };
    let body = if http.upload { "post" } else { "body" };
    let mut options = vec![
        ("url".to_owned(), Located::from(format!("{scheme}://dut.example/").as_str())),
        (body.to_owned(), Located::from(http.object_octets.to_string().as_str())),
        ("requests".to_owned(), Located::from(http.requests.to_string().as_str())),
    ];
    if http.think_s > 0.0 {
        let think = Nanos::from_secs_f64(http.think_s).to_string();
        options.push(("think".to_owned(), Located::from(think.as_str())));
    }
    template.content = FlowContent::App { app: Located::from("http"), options };
    template.data = None;
    carried_over(template, Transport::Tcp);
    if http.tls {
        template.tls.get_or_insert_default();
    } else {
        template.tls = None;
    }
}

/// Replaces the application of a template with an exchange at the start of the flow, and another
/// one after a wait.
fn is_kept(template: &mut Template, kept: Kept) {
    /// Time for an answer in addition to the wait, seconds.
    const ANSWER_S: f64 = 1.0;
    let nanos = |seconds: f64| Nanos::from_secs_f64(seconds);
    let (wait, answer) = (nanos(kept.wait_s), nanos(ANSWER_S));
    let later = nanos(kept.wait_s + ANSWER_S);
    let (send, recv, end) = match kept.udp {
        true => ("send_packet", "recv_packets", None),
        false => ("send", "recv", Some("wait_peer_close".to_owned())),
    };
    let client = [
        format!("{send} \"a\""),
        format!("{recv} 1 within {answer}"),
        format!("{recv} 1 within {later}"),
    ];
    let delay = (wait > Nanos::ZERO).then(|| format!("delay {wait}"));
    let server = [format!("{recv} 1"), format!("{send} \"b\"")].into_iter();
    let server = server.chain(delay).chain([format!("{send} \"c\"")]).chain(end);
    let located = |text: String| Located::from(text.as_str());
    template.content = FlowContent::Programs {
        client: client.map(located).into(),
        server: server.map(located).collect(),
        messages: Vec::new(),
    };
    template.data = None;
    template.tls = None;
    carried_over(template, if kept.udp { Transport::Udp } else { Transport::Tcp });
    // The port of the echo service (RFC 862).
    template.listen.get_or_insert(7);
    let idle = (later + answer).to_string();
    let (name, value) = match kept.udp {
        true => ("udp_idle", idle.as_str()),
        // No retries: one could succeed once other flows have left the table.
        false => ("syn_retries", "0"),
    };
    template.tcp.settings.push((name.to_owned(), value.into()));
}

/// Replaces the application of a template by a query for the AAAA record of a name.
fn asks_for_aaaa(template: &mut Template, dns: &Dns) {
    /// A header (RFC 1035 §4.1.1), and the first label with its length.
    const BEFORE_DOMAIN: usize = 12 + 17;
    // Names of earlier trials can be in a cache of the server, also if another process has run them.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let trial = now.as_millis() as u32;
    let labels = dns.domain.split('.').map(|label| format!("\\x{:02x}{label}", label.len()));
    let labels: String = labels.collect();
    let query = format!(
        "${{random:octets:2:flow}}\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x10{trial:08x}${{flow:8}}\
         {labels}\\x00\\x00\\x1c\\x00\\x01"
    );
    // The type of the first record, after the end of the name, type and class of the question, and
    // a pointer to that name (RFC 1035 §4.1.4).
    let question = BEFORE_DOMAIN + dns.domain.len() + 1 + 1 + 4;
    let within = Nanos::from_secs_f64(dns.within_s);
    let client = [
        format!("send_packet \"{query}\""),
        format!("recv_packets 1 take type = be16 at {} within {within}", question + 2),
        "jump valid if type == 28".into(),
        // The only packet was another answer: the flow fails after this time.
        "recv_packets 1 within 1 ms".into(),
        "label valid".into(),
    ];
    template.content = FlowContent::Programs {
        client: client.iter().map(|text| Located::from(text.as_str())).collect(),
        server: Vec::new(),
        messages: Vec::new(),
    };
    template.data = None;
    template.tls = None;
    template.play = Play::Clients;
    carried_over(template, Transport::Udp);
    template.listen.get_or_insert(53);
    let idle = (within + Nanos(1_000_000_000)).to_string();
    template.tcp.settings.push(("udp_idle".to_owned(), idle.as_str().into()));
}

/// Sets the transport, and removes settings of the profile that do not apply to it.
fn carried_over(template: &mut Template, transport: Transport) {
    let fits = |name: &str| match name {
        "mss" | "tos" | "ttl" => true,
        "udp_idle" => transport == Transport::Udp,
        _ => transport == Transport::Tcp,
    };
    template.transport = transport;
    let Template { tcp, client_tcp, server_tcp, .. } = template;
    for tcp in [tcp, client_tcp, server_tcp] {
        tcp.settings.retain(|(name, _)| fits(name));
    }
}
