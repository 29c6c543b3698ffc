//! Checks whether frames and connections pass the path, and if not, explains why.

use squall_method::{FlowsMeasured, Lane, Measured, Path, Trial};
use squall_profile::{Flows, Network, Profile};
use squall_units::{Cannot, Nanos};

use crate::{RunResult, measured::measured};
use squall::{Error, report::flows::LinkReport};

/// Attempts: the fraction of the path's rates, and the wait for frames in flight and open
/// connections. A working path takes about 70 ms. The second attempt leaves time for a path with a
/// long delay, for a device that has to learn addresses, and for a link that comes up late.
pub(crate) const ATTEMPTS: [(f64, Nanos); 2] =
    [(1.0, Nanos(50_000_000)), (0.02, Nanos(2_000_000_000))];

/// Why the path cannot be used; `None` if some frames of each lane and some connections came
/// through.
///
/// # Errors
/// Reports that are not of the same run.
pub(crate) fn dead(
    path: &Path,
    trial: &Trial,
    profile: &Profile,
    ran: RunResult,
) -> Result<Option<Cannot>, Error> {
    let silent = profile.flows.as_ref().map(|flows| silent(flows, profile, &ran));
    let silent = silent.unwrap_or_default();
    let measured = measured(trial, ran)?;
    let mut counts: Vec<Count> = Vec::new();
    for lane in trial.lanes.iter().filter(|lane| lane.is_measured()) {
        counts.extend(lanes(path, lane, profile, &measured));
    }
    counts.extend(connections(trial, profile, &measured));
    if counts.iter().all(|count| count.came > 0) {
        return Ok(None);
    }
    let counted = counts.iter().map(Count::text);
    let text = counted.chain(silent.iter().cloned()).collect::<Vec<_>>().join("; ");
    let cannot = Cannot::new("test the device", format!("nothing came through: {text}"));
    Ok(Some(cannot.with_hint(hint(&counts, !silent.is_empty()))))
}

/// Number of frames or connections of one direction.
struct Count {
    what: String,
    came: u64,
    of: u64,
    /// The most frequent reason for failed connections.
    because: Option<String>,
    connections: bool,
}

impl Count {
    fn text(&self) -> String {
        let because = self.because.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("{} {} of {}{because}", self.what, self.came, self.of)
    }
}

/// Count of a lane. A multicast lane has one for each receiver.
fn lanes(path: &Path, lane: &Lane, profile: &Profile, measured: &Measured) -> Vec<Count> {
    let found = measured.lane(&lane.name).cloned().unwrap_or_default();
    let from = sender(lane, profile);
    let of = found.sent;
    let count = |what, came| Count { what, came, of, because: None, connections: false };
    if !path.receivers.is_empty() {
        let receiver = |to: &String| {
            count(format!("from {from} to {to}"), measured.signed_at(to).unwrap_or_default())
        };
        return path.receivers.iter().map(receiver).collect();
    }
    let same = |other: &&Lane| other.is_measured() && sender(other, profile) == from;
    let alone = path.trial.lanes.iter().filter(same).count() == 1;
    let others: Vec<&str> = ports(profile).filter(|port| *port != from).collect();
    let way = match others[..] {
        [] => format!("from {from} back to {from}"),
        [to] => format!("from {from} to {to}"),
        _ => format!("from {from}"),
    };
    let what = match others[..] {
        [] | [_] if alone => way,
        _ => format!("{way} (\"{}\")", lane.name),
    };
    vec![count(what, found.received)]
}

fn ports(profile: &Profile) -> impl Iterator<Item = &str> {
    profile.ports.iter().map(|port| port.name.as_str())
}

/// The port that sends a lane.
fn sender<'a>(lane: &'a Lane, profile: &'a Profile) -> &'a str {
    if let Some(template) = &lane.template {
        return &template.port;
    }
    let stream = profile.streams.iter().find(|stream| stream.name == lane.stream);
    stream.map_or("", |stream| &profile.ports[stream.port].name)
}

/// Opened connections. UDP has none, so completed exchanges count instead.
fn connections(trial: &Trial, profile: &Profile, measured: &Measured) -> Option<Count> {
    let (load, flows) = (trial.flows.as_ref()?, profile.flows.as_ref()?);
    let found = measured.flows.as_ref()?;
    let name = |port: Option<usize>| port.map(|port| profile.ports[port].name.as_str());
    let what = match (name(flows.clients), name(flows.servers)) {
        (Some(from), Some(to)) => format!("connections from {from} to {to}"),
        (Some(from), None) => format!("connections from {from}"),
        (None, _) => "connections".into(),
    };
    Some(Count {
        what,
        came: if load.kept.is_some() || load.dns.is_some() {
            found.completed
        } else {
            found.established
        },
        of: load.limit.unwrap_or(found.attempted),
        because: most_frequent(found),
        connections: true,
    })
}

fn most_frequent(flows: &FlowsMeasured) -> Option<String> {
    let most = flows.failed.iter().max_by_key(|(_, count)| **count);
    most.map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")))
}

/// Next hops of both sides that did not answer the request for their MAC address.
fn silent(flows: &Flows, profile: &Profile, ran: &RunResult) -> Vec<String> {
    let sides = [
        (flows.clients, &flows.client_network, servers(flows)),
        (flows.servers, &flows.server_network, None),
    ];
    let mut texts = Vec::new();
    for (port, network, peer) in sides {
        let Some(port) = port.map(|port| &profile.ports[port].name) else { continue };
        let reports = ran.reports.iter().filter_map(|(_, report)| report.flows.as_ref());
        let links = reports.flat_map(|flows| &flows.links).filter(|link| link.port == *port);
        let (asked, found) = links.fold((0, 0), |(asked, found), link| {
            let sent =
                ["arp_requests_sent", "nd_solicitations_sent"].map(|name| counter(link, name));
            (asked + sent.iter().sum::<u64>(), found + counter(link, "resolved"))
        });
        if asked > 0 && found == 0 {
            texts.extend(question(network, peer).map(|text| format!("{text} was not answered")));
        }
    }
    texts.dedup();
    texts
}

fn counter(link: &LinkReport, name: &str) -> u64 {
    link.counters.get(name).copied().unwrap_or_default()
}

/// The first address of the servers of the first template.
fn servers(flows: &Flows) -> Option<&str> {
    let pool = flows.pools.get(flows.templates.first()?.servers)?;
    pool.addresses.first()?.text.split(['-', '/']).next()
}

/// The ARP or ND request of a next hop: the gateway, or a peer in the same network.
fn question(network: &Network, peer: Option<&str>) -> Option<String> {
    let address = network.gateway.first().map_or(peer, |gateway| Some(&gateway.text))?;
    let protocol = if address.contains(':') { "neighbor discovery" } else { "ARP" };
    Some(format!("{protocol} for {address}"))
}

fn hint(counts: &[Count], silent: bool) -> &'static str {
    match counts.iter().any(|count| count.came == 0 && !count.connections) {
        _ if silent => {
            "--gateway (of a profile: gateway in [flows.client_network]) with the device's address on \
             that side, and squall ports for the state of the link"
        }
        true => {
            "squall ports for the state of the links, and eth(dst=...) of the streams with the MAC \
             address of the device's interface, if the device routes"
        }
        false => {
            "squall ports for the state of the links, and the device's routes and rules for the \
             addresses of clients and servers"
        }
    }
}
