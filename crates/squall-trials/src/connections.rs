//! The flows of a trial: the profile's, at the trial's load.

use squall_method::{Bulk, FlowLoad, Halt, Http};
use squall_profile::{Arrival, FlowContent, Flows, Located, Ramp, Spacing, Template, Transport};
use squall_units::Nanos;

/// Adapts the profile's flows to one trial.
pub(crate) fn loaded(flows: &Flows, load: &FlowLoad, duration_s: f64) -> Result<Flows, Halt> {
    let mut flows = Flows { limit: load.limit, ..flows.clone() };
    if let Some(http) = load.http {
        // The HTTP exchange replaces programs, so that nothing starts these templates.
        flows.templates.retain(|template| template.arrival != Arrival::Called);
        flows.templates.truncate(1);
        flows.templates.iter_mut().for_each(|template| speaks_http(template, http));
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
        return Err(Halt::Usage("the profile has no template of flows".into()));
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

/// TCP port of the servers of bulk transfers if the template has none; the next one is that of the
/// other direction. iperf's port, which firewalls of labs often pass.
const BULK_PORT: u16 = 5001;
/// Time within which the connections of one direction open, seconds.
const BULK_OPEN_S: f64 = 0.1;
/// Octets of one message. A connection has up to 15 messages on the way, which with this length are
/// its limit of 1 MiB: fewer octets would not fill a long queue.
const BULK_MESSAGE: u32 = 64 << 10;
/// Time that open connections have after the end of a trial. Each would otherwise take the drain
/// time of the profile, as none of them ends by itself.
const BULK_DRAIN: Nanos = Nanos(50_000_000);

/// One template per direction, made from the first template of the profile.
fn bulk_transfers(mut flows: Flows, bulk: Bulk, load: &FlowLoad) -> Result<Flows, Halt> {
    flows.templates.retain(|template| template.arrival != Arrival::Called);
    let Some(first) = flows.templates.first().cloned() else {
        return Err(Halt::Usage("the profile has no template of flows".into()));
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

/// Replaces the application of a template by HTTP.
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
    template.transport = Transport::Tcp;
    if http.tls {
        template.tls.get_or_insert_default();
    } else {
        template.tls = None;
    }
}
