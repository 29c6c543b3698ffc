//! Attacks between hosts: their frames get addresses when they leave.

use squall_profile::{Attack, AttackOf, Diagnostic, HostGroup, Located, Profile};
use squall_units::MacAddr;

use crate::hosts::{group_of_flows, is_concentrator, is_ipv6};

/// The hosts between which the conversations of a replay take place. Each conversation has the
/// hosts that are next in turn when it begins.
///
/// A frame names its conversation in place of the MAC address of its server
/// ([`ReplayHosts::server_mac`]). That of its client is [`ReplayHosts::CLIENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayHosts {
    /// Numbers of the groups; `None`: this end is no host, and keeps its IP address.
    pub clients: Option<usize>,
    pub servers: Option<usize>,
}

impl ReplayHosts {
    /// MAC addresses of ends that are no hosts.
    pub const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    pub const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    /// The mark that frames of this conversation have in place of the server's MAC address. Numbers
    /// have 40 bits.
    pub fn server_mac(conversation: u64) -> MacAddr {
        let [_, _, _, number @ ..] = conversation.to_be_bytes();
        let [a, b, c, d, e] = number;
        // Locally administered.
        MacAddr([0x06, a, b, c, d, e])
    }

    /// The number of a frame's conversation, and whether its client sent the frame.
    ///
    /// # Panics
    /// If the frame has less than 12 octets.
    #[inline]
    pub fn conversation(frame: &[u8]) -> (u64, bool) {
        let from_client = frame[6..12] == Self::CLIENT.0;
        let number = if from_client { &frame[1..6] } else { &frame[7..12] };
        (number.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)), from_client)
    }

    /// Whether the addresses of the hosts are those of IPv6.
    pub fn is_ipv6(self, profile: &Profile) -> bool {
        self.groups().any(|group| is_ipv6(&profile.hosts[group]))
    }

    /// The VLAN of the hosts.
    pub fn vlan(self, profile: &Profile) -> Option<u64> {
        self.groups().find_map(|group| profile.hosts[group].vlan)
    }

    /// Whether the frames of the clients, and those of the servers, are in sessions of PPPoE. A
    /// sender that is a host has its own session; other frames come from the receiver's access
    /// concentrator.
    pub fn sessions(self, profile: &Profile) -> [bool; 2] {
        let group = |number: Option<usize>| number.map(|number| &profile.hosts[number]);
        let (clients, servers) = (group(self.clients), group(self.servers));
        let of = |sender: Option<&HostGroup>, receiver: Option<&HostGroup>| {
            sender.or(receiver).is_some_and(|group| group.pppoe.is_some())
        };
        [of(clients, servers), of(servers, clients)]
    }

    /// Octets of the longest IP packet that sessions of PPPoE carry; `None`: there are none.
    pub fn mru(self, profile: &Profile) -> Option<u16> {
        let groups = self.groups().map(|group| &profile.hosts[group]);
        groups.filter(|group| group.pppoe.is_some()).map(|group| group.mru as u16).min()
    }

    /// Numbers of the groups.
    pub fn groups(self) -> impl Iterator<Item = usize> {
        self.clients.into_iter().chain(self.servers)
    }
}

/// Smallest `mru` of hosts with attacks: each host accepts packets of this length (RFC 791 section
/// 3.1), and all headers of a packet fit into it.
const MIN_MRU: u16 = 576;

/// The hosts of an attack; `None`: it has none.
///
/// # Errors
/// A group does not exist, cannot be used, or is on another port than that end of the attack; or
/// the attack has a setting that it cannot have with hosts.
pub fn attack_hosts(attack: &Attack, profile: &Profile) -> Result<Option<ReplayHosts>, Diagnostic> {
    let name = &attack.name;
    let server_port = attack.port2.unwrap_or(attack.port);
    let clients = group(attack, ("clients", &attack.clients), attack.port, profile)?;
    let servers = group(attack, ("servers", &attack.servers), server_port, profile)?;
    let hosts = ReplayHosts { clients, servers };
    let problem = |text: String, hint: &str| {
        Err(Diagnostic::at(attack.at, format!("attack {name:?}: {text}"), vec![hint.into()]))
    };
    let Some(first) = hosts.groups().next() else { return Ok(None) };
    if attack.live && servers.is_some() {
        let text = "the servers of live conversations cannot be hosts".into();
        return problem(text, "try only clients, or live = false: all leaves as frames");
    }
    if attack.background.is_some() {
        let text = "frames of hosts cannot be mixed with a background".into();
        return problem(text, "try the capture as a [[replay]]");
    }
    if !attack.wrap.is_empty() {
        let text = "frames of hosts cannot have an encapsulation of their own".into();
        return problem(text, "try vlan in [[host]]");
    }
    if let AttackOf::Template { options, .. } = &attack.what {
        let given = |key: &str| options.iter().any(|(option, _)| option == key);
        let twice = [("clients", clients), ("servers", servers)];
        if let Some((key, _)) = twice.iter().find(|(key, group)| group.is_some() && given(key)) {
            let text = format!("the option {key} of the template has other addresses than hosts");
            return problem(text, "try without the option");
        }
    }
    if let Some(mru) = hosts.mru(profile).filter(|mru| *mru < MIN_MRU) {
        let text = format!("sessions of PPPoE of its hosts have mru = {mru}");
        return problem(text, &format!("try at least {MIN_MRU}, which each packet can have"));
    }
    for (end, other) in [(clients, servers), (servers, clients)] {
        let is_client = |group: usize| {
            let group = &profile.hosts[group];
            group.pppoe.is_some() && !is_concentrator(group)
        };
        if let Some(group) = end.map(|number| &profile.hosts[number])
            && is_concentrator(group)
            && !other.is_some_and(is_client)
        {
            let text = format!(
                "hosts {:?} are an access concentrator, which only has sessions with its clients",
                group.name
            );
            return problem(text, "try hosts with pppoe at the other end");
        }
    }
    let is_ipv6 = |group: usize| is_ipv6(&profile.hosts[group]);
    if let Some(family) = attack.family.filter(|family| (*family == 6) != is_ipv6(first)) {
        let text = format!("family = {family}, but the hosts have addresses of the other family");
        return problem(text, "try without family");
    }
    if let (Some(clients), Some(servers)) = (clients, servers) {
        let vlan = |group: usize| profile.hosts[group].vlan;
        let (text, hint) = if clients == servers {
            ("clients and servers are the same hosts", "try two groups")
        } else if is_ipv6(clients) != is_ipv6(servers) {
            ("clients and servers have IPv4 and IPv6", "try hosts that have the same")
        } else if vlan(clients) != vlan(servers) {
            ("clients and servers are in different VLANs", "try hosts of one VLAN")
        } else {
            return Ok(Some(hosts));
        };
        return problem(text.into(), hint);
    }
    Ok(Some(hosts))
}

/// The number of the group that a key of the attack names.
fn group(
    attack: &Attack,
    (key, named): (&str, &Option<Located>),
    port: usize,
    profile: &Profile,
) -> Result<Option<usize>, Diagnostic> {
    let Some((name, named)) = named.as_ref().and_then(|of| Some((of.host_group()?, of))) else {
        return Ok(None);
    };
    let number = group_of_flows(&profile.hosts, (name, named))?;
    let own = profile.hosts[number].port;
    if own != port {
        let text = format!(
            "attack {:?}: {key} = {:?}: these hosts are on port {}",
            attack.name, named.text, profile.ports[own].name
        );
        let hint = format!("try hosts on port {}", profile.ports[port].name);
        return Err(Diagnostic::at(named.at, text, vec![hint]));
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_names_its_conversation_in_both_directions() {
        for number in [0, 1, 0x12_3456_789a, (1 << 40) - 1] {
            let server = ReplayHosts::server_mac(number);
            let there = [server.0, ReplayHosts::CLIENT.0].concat();
            let back = [ReplayHosts::CLIENT.0, server.0].concat();
            assert_eq!(ReplayHosts::conversation(&there), (number, true));
            assert_eq!(ReplayHosts::conversation(&back), (number, false));
        }
    }
}
