//! Streams whose frames come from the hosts of a group, or go to them or to the routes that a router
//! has learnt: fields that are supplied during the run.

use std::borrow::Cow;

use squall_profile::{Diagnostic, HostGroup, Located, PacketSource, Profile, Stream};
use squall_program::{Law, Turn, VarSpec};
use squall_units::MacAddr;
use squall_wire::{Frame, Packet};

use crate::{
    PlanRouter, PortLimits,
    hosts::{group_of_flows, is_concentrator, is_ipv6},
    stream_routes,
};

/// Hosts from which a stream's frames come, and to which they go. Each frame has the next ones that
/// have an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamHosts {
    /// Numbers of the groups.
    pub src: Option<usize>,
    pub dst: Option<usize>,
    /// The routes to which they go, in place of `dst`.
    pub learnt: Option<LearntRoutes>,
    /// The fields of a frame that depend on its hosts. The position of each is its column
    /// ([`Law::Supplied`]).
    pub fields: Vec<HostField>,
}

/// Routes of one IP version that a router has learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LearntRoutes {
    /// Number of the router.
    pub router: usize,
    pub is_ipv6: bool,
    /// Number of the table that has them: after those of the groups of hosts, two for each router.
    pub table: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostField {
    /// MAC address of the sending host, its IP address, and the MAC address of its gateway.
    SourceMac,
    Source,
    NextHop,
    /// MAC address and IP address of the receiving host.
    DestinationMac,
    Destination,
    /// MAC address of the access concentrator of the receiving host, for frames that leave as its
    /// own.
    Concentrator,
    /// The session of PPPoE in which the frame is.
    Session,
}

impl HostField {
    fn name(self, is_ipv6: bool) -> &'static str {
        match (self, is_ipv6) {
            (Self::SourceMac | Self::Concentrator, _) => "eth.src",
            (Self::NextHop | Self::DestinationMac, _) => "eth.dst",
            (Self::Source, false) => "ipv4.src",
            (Self::Source, true) => "ipv6.src",
            (Self::Destination, false) => "ipv4.dst",
            (Self::Destination, true) => "ipv6.dst",
            (Self::Session, _) => "pppoe.session",
        }
    }
}

/// The groups that a stream names, and the router whose learnt routes it names; `None`: none.
///
/// # Errors
/// A group or router does not exist, cannot be used by streams, or is on another port or node.
pub(crate) fn groups(
    stream: &Stream,
    profile: &Profile,
    limits: &[PortLimits],
    routers: &[PlanRouter],
) -> Result<Option<StreamHosts>, Diagnostic> {
    let find = |named: &Option<Located>| {
        let named = named.as_ref().and_then(|of| Some((of.host_group()?, of)));
        named.map(|named| group_of_flows(&profile.hosts, named)).transpose()
    };
    let (src, dst) = (find(&stream.src)?, find(&stream.dst)?);
    if let (Some(number), Some(named)) = (src, &stream.src)
        && profile.hosts[number].port != stream.port
    {
        let port = |port: usize| &profile.ports[port].name;
        let text = format!(
            "stream {:?}: src = {:?}: these hosts are on port {}",
            stream.name,
            named.text,
            port(profile.hosts[number].port)
        );
        let hint = format!("try port = {:?}", port(profile.hosts[number].port));
        return Err(Diagnostic::at(named.at, text, vec![hint]));
    }
    if let (Some(number), Some(named)) = (src, &stream.src)
        && is_concentrator(&profile.hosts[number])
    {
        let name = &profile.hosts[number].name;
        let text = format!(
            "stream {:?}: src = {:?}: hosts {name:?} are an access concentrator, which has a \
             session for each client",
            stream.name, named.text
        );
        let hint = "try dst = \"host:CLIENTS\" without src: the frames are then those of their \
                    concentrator";
        return Err(Diagnostic::at(named.at, text, vec![hint.into()]));
    }
    let elsewhere = |port: usize| limits[port].elsewhere;
    if let (Some(number), Some(named)) = (dst, &stream.dst)
        && elsewhere(profile.hosts[number].port) != elsewhere(stream.port)
    {
        let text = format!("stream {:?}: the hosts of dst are on another node", stream.name);
        let hint = "try a port of the same node, or the addresses of the hosts in the packet";
        return Err(Diagnostic::at(named.at, text, vec![hint.into()]));
    }
    let family = |number: usize| is_ipv6(&profile.hosts[number]);
    if src.zip(dst).is_some_and(|(src, dst)| family(src) != family(dst)) {
        let text = format!("stream {:?}: the hosts of src and dst have IPv4 and IPv6", stream.name);
        let hint = "try hosts that have the same, or two streams";
        return Err(Diagnostic::at(stream.at, text, vec![hint.into()]));
    }
    let learnt = match &stream.dst {
        Some(named) => learnt(named, stream, profile, limits, routers)?,
        None => None,
    };
    let any = src.is_some() || dst.is_some() || learnt.is_some();
    Ok(any.then_some(StreamHosts { src, dst, learnt, fields: Vec::new() }))
}

/// The routes that `named` is, if it names learnt ones. [`fields`] sets their IP version.
///
/// # Errors
/// There is no such router, or it does not know single routes.
fn learnt(
    named: &Located,
    stream: &Stream,
    profile: &Profile,
    limits: &[PortLimits],
    routers: &[PlanRouter],
) -> Result<Option<LearntRoutes>, Diagnostic> {
    let Some(name) = named.learnt() else { return Ok(None) };
    let problem = |what: String, hint: String| {
        let text = format!("stream {:?}: dst = {:?}: {what}", stream.name, named.text);
        Err(Diagnostic::at(named.at, text, vec![hint]))
    };
    let (number, group) = match stream_routes::find(name, profile, routers) {
        Ok(found) => found,
        Err((what, hint)) => return problem(what, hint),
    };
    let router = &routers[number];
    if group.is_some() {
        let hint = format!("try dst = \"learnt:{}\"", router.name);
        return problem("learnt routes have no groups".into(), hint);
    }
    if router.settings.daemon.native().is_none() {
        let what = format!(
            "router {:?} is {}, which would be asked for its whole table again and again",
            router.name,
            router.settings.daemon.name()
        );
        return problem(what, "try daemon = \"native\" for this router".into());
    }
    if router.elsewhere != limits[stream.port].elsewhere {
        let hint = "try a port of the same node";
        return problem("this router is on another node".into(), hint.into());
    }
    let table = profile.hosts.len() + 2 * number;
    Ok(Some(LearntRoutes { router: number, is_ipv6: false, table }))
}

/// Whether the frames are in sessions of PPPoE. The sessions are those of the sending hosts.
/// Without these, frames to such hosts come from their access concentrator, unless the packet has
/// the MAC address of a router.
fn has_sessions(stream: &Stream, hosts: &StreamHosts, groups: &[HostGroup]) -> bool {
    let of = hosts.src.or(hosts.dst.filter(|_| !sets_eth(stream, "dst")));
    let in_session = |group: &HostGroup| group.pppoe.is_some() && !is_concentrator(group);
    of.is_some_and(|number| in_session(&groups[number]))
}

/// Whether the packet sets a field of its Ethernet header.
fn sets_eth(stream: &Stream, field: &str) -> bool {
    match &stream.packet {
        PacketSource::Layers(packet) => {
            packet.layers.first().is_some_and(|layer| layer.sets_field(field))
        }
        PacketSource::Octets(_) | PacketSource::Capture { .. } => false,
    }
}

/// The stream with the VLAN tag of the hosts that send it, and the headers of their sessions of
/// PPPoE.
///
/// # Errors
/// The packet has another tag, or a field that the hosts set.
pub(crate) fn tagged<'s>(
    stream: &'s Stream,
    hosts: &StreamHosts,
    groups: &[HostGroup],
) -> Result<Cow<'s, Stream>, Diagnostic> {
    let PacketSource::Layers(packet) = &stream.packet else { return Ok(Cow::Borrowed(stream)) };
    let sets = [
        (hosts.src.is_some(), "src = \"host:NAME\"", "src"),
        (hosts.dst.is_some(), "dst = \"host:NAME\"", "dst"),
        (hosts.learnt.is_some(), "dst = \"learnt:NAME\"", "dst"),
    ];
    for (is_named, key, field) in sets {
        let set = |layer: &squall_wire::Layer| {
            layer.sets_field(field) && (layer.header.name != "eth" || field == "src")
        };
        let first = |name| packet.layers.iter().find(|layer| layer.header.name == name);
        let set = ["eth", "ipv4", "ipv6"].into_iter().filter_map(first).find(|layer| set(layer));
        if let (true, Some(layer)) = (is_named, set) {
            let text = format!(
                "stream {:?}: the packet sets {}.{field}, which {key} sets, too",
                stream.name, layer.header.name
            );
            return Err(Diagnostic::at(
                stream.packet_at,
                text,
                vec!["try without one of them".into()],
            ));
        }
    }
    let in_session = has_sessions(stream, hosts, groups);
    let session = packet.layers.iter().find(|layer| layer.header.name == "pppoe");
    if in_session && session.is_some_and(|layer| layer.sets_field("session")) {
        let text =
            format!("stream {:?}: the packet sets pppoe.session, which hosts set", stream.name);
        let hint = "try without it";
        return Err(Diagnostic::at(stream.packet_at, text, vec![hint.into()]));
    }
    let starts_with_eth = packet.layers.first().is_some_and(|layer| layer.header.name == "eth");
    let is_tagged = packet.layers.get(1).is_some_and(|layer| layer.header.name == "vlan");
    let vlan = hosts.src.and_then(|number| groups[number].vlan).filter(|_| !is_tagged);
    let opens = in_session && session.is_none();
    if !starts_with_eth || vlan.is_none() && !opens {
        return Ok(Cow::Borrowed(stream));
    }
    let mut packet = packet.clone();
    if let Some(vlan) = vlan {
        let tag = Packet::parse(&format!("eth/vlan(id={vlan})")).expect("a tag with a valid id");
        packet.layers.splice(1..1, tag.layers.into_iter().skip(1));
    }
    if opens {
        let is_tag = |layer: &&squall_wire::Layer| layer.header.name == "vlan";
        let tags = packet.layers.iter().skip(1).take_while(is_tag).count();
        let session = Packet::parse("eth/pppoe/ppp").expect("the headers of a session");
        packet.layers.splice(1 + tags..1 + tags, session.layers.into_iter().skip(1));
    }
    Ok(Cow::Owned(Stream { packet: PacketSource::Layers(packet), ..stream.clone() }))
}

/// The variables that have the hosts' values, and their order in `hosts`. `vars` are those of the
/// stream's field programs.
///
/// # Errors
/// The frame lacks a header, has another VLAN tag, or a field program writes the same field.
pub(crate) fn fields(
    stream: &Stream,
    hosts: &mut StreamHosts,
    groups: &[HostGroup],
    frame: &mut Frame,
    vars: &[VarSpec],
) -> Result<Vec<VarSpec>, Diagnostic> {
    let name = &stream.name;
    let problem = |at, text: String, hint: &str| Err(Diagnostic::at(at, text, vec![hint.into()]));
    if let Some(group) = hosts.src.map(|number| &groups[number]) {
        let id = frame.field("vlan.id").ok().map(|field| frame.value(&field) as u64);
        if id != group.vlan {
            let of = |id: Option<u64>| id.map_or("no VLAN".to_owned(), |id| format!("VLAN {id}"));
            let text = format!(
                "stream {name:?}: the packet has {}, but the hosts {:?} have {}",
                of(id),
                group.name,
                of(group.vlan)
            );
            return problem(stream.packet_at, text, "try the packet without a VLAN tag");
        }
    }
    let own_mac = sets_eth(stream, "dst");
    let in_session = has_sessions(stream, hosts, groups);
    // In a session, all frames go to its other end.
    let group_mac = group_mac(frame, hosts.dst.is_some() || hosts.learnt.is_some());
    let group_mac = group_mac.filter(|_| !in_session);
    if let Some(MacAddr(mac)) = group_mac.filter(|_| !own_mac) {
        frame.bytes[..6].copy_from_slice(&mac);
    }
    let own_mac = own_mac || group_mac.is_some();
    let (src, dst) = (hosts.src.is_some(), hosts.dst.is_some());
    let wanted = [
        (src, HostField::SourceMac),
        (in_session && !src && !sets_eth(stream, "src"), HostField::Concentrator),
        (src, HostField::Source),
        (src && !own_mac, HostField::NextHop),
        (dst && !src && !own_mac, HostField::DestinationMac),
        (dst || hosts.learnt.is_some(), HostField::Destination),
        (in_session, HostField::Session),
    ];
    hosts.fields = wanted.into_iter().filter(|of| of.0).map(|of| of.1).collect();
    let mut specs = Vec::new();
    let group = hosts.src.or(hosts.dst).map(|number| &groups[number]);
    let is_ipv6 = match group {
        Some(group) => is_ipv6(group),
        None => frame.field("ipv4.dst").is_err(),
    };
    if let Some(learnt) = &mut hosts.learnt {
        learnt.is_ipv6 = is_ipv6;
        learnt.table += usize::from(is_ipv6);
    }
    let setters = match group {
        Some(group) => format!("the hosts {:?}", group.name),
        None => "learnt routes".to_owned(),
    };
    for (column, field) in hosts.fields.iter().map(|field| field.name(is_ipv6)).enumerate() {
        let Ok(place) = frame.field(field) else {
            let text =
                format!("stream {name:?}: {} has no {field}, which {setters} set", frame.names());
            let hint = match (is_ipv6, in_session) {
                (true, _) => "try eth/ipv6/udp",
                (false, false) => "try eth/ipv4/udp",
                (false, true) => "try eth/pppoe/ppp/ipv4/udp",
            };
            return problem(stream.packet_at, text, hint);
        };
        let written =
            |var: &VarSpec| var.bit < place.bit + place.bits && place.bit < var.bit + var.bits;
        if let Some((vary, _)) = stream.vary.iter().zip(vars).find(|(_, var)| written(var)) {
            let text =
                format!("stream {name:?}: a field program writes {field}, which {setters} set");
            return problem(vary.at, text, "try without this field program");
        }
        specs.push(VarSpec {
            bit: place.bit,
            bits: place.bits,
            law: Law::Supplied { column },
            turn: Turn::default(),
            every: 1,
            phase: 0,
        });
    }
    Ok(specs)
}

/// The MAC address of the frame's destination, if all receivers of a group or of the link have it: no
/// next hop then takes its place (RFC 1112 section 6.4).
fn group_mac(frame: &Frame, to_hosts: bool) -> Option<MacAddr> {
    if to_hosts {
        return None;
    }
    let mac = frame.bytes.first_chunk::<6>().filter(|mac| mac[0] & 1 == 1).copied();
    if mac.is_none()
        && let Some(group) = frame.field("ipv6.dst").ok().map(|field| frame.value(&field))
        && group >> 120 == 0xff
    {
        // RFC 2464 section 7.
        let [.., a, b, c, d] = group.to_be_bytes();
        return Some(MacAddr([0x33, 0x33, a, b, c, d]));
    }
    let destination = frame.field("ipv4.dst").ok().map(|field| frame.value(&field) as u32);
    match (mac, destination) {
        (Some(mac), _) => Some(MacAddr(mac)),
        (None, Some(u32::MAX)) => Some(MacAddr([0xff; 6])),
        (None, Some(address)) if address >> 28 == 0xe => {
            let [_, b, c, d] = address.to_be_bytes();
            Some(MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        _ => None,
    }
}
