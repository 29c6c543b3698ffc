//! Tagged packet groups: which ports count them, for which tags, and the counters.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use serde_json::{Map, Value, json};

use super::{Answer, Method, Refusal, Server, number};
use crate::{
    rpc::Params,
    stream::Stream,
    tagged::{Class, Received, Tag, Tags},
    traffic::{Group, Sent},
    vm,
};

/// Maximum counters that `clear_updated` clears at a time, as in TRex.
const MOST_CLEARED: u64 = 2048;

/// The groups and tags of a user.
pub struct Tagged {
    /// Ports that send and, among them, those that count.
    ports: Vec<usize>,
    rx_ports: Vec<usize>,
    groups: u32,
    tags: Tags,
    state: State,
    /// Counters of sent packets and octets when they were cleared, by port and group.
    cleared: HashMap<(usize, u32), (u64, u64)>,
}

/// States that clients wait for, with TRex's numbers. Nothing takes time here, so those between
/// them are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Disabled = 0,
    /// Counters exist; a second `enable_tpg` follows.
    Allocated = 2,
    Enabled = 3,
    /// Counters are gone; a second `disable_tpg` follows.
    Freed = 5,
}

pub const METHODS: &[(&str, Method)] = &[
    ("clear_tpg_stats", |s, port, p| s.clear_tagged(port, p)),
    ("clear_tpg_tx_stats", |s, port, p| s.clear_tagged_sent(port, p)),
    ("clear_tpg_unknown_tags", |s, port, _| {
        s.counting(port)?;
        s.traffic.receiver(port).lock().clear_unknown();
        Ok(json!({}))
    }),
    ("clear_updated", |s, port, p| s.clear_updated(port, p)),
    ("disable_tpg", |s, _, p| s.disable_tagged(p)),
    ("enable_tpg", |s, _, p| s.enable_tagged(p)),
    ("get_tpg_state", |s, _, p| {
        let tagged = s.tagged.get(p.text("username")?);
        Ok(json!(tagged.map_or(State::Disabled, |tagged| tagged.state) as u8))
    }),
    ("get_tpg_stats", |s, port, p| s.tagged_stats(port, p)),
    ("get_tpg_status", |s, port, p| s.tagged_status(port, p)),
    ("get_tpg_tags", |s, port, p| s.tagged_tags(port, p)),
    ("get_tpg_tx_stats", |s, port, p| s.tagged_sent(port, p)),
    ("get_tpg_unknown_tags", |s, port, _| {
        s.counting(port)?;
        Ok(json!({ port.to_string(): s.traffic.receiver(port).lock().unknown() }))
    }),
    ("update_tpg_tags", |s, _, p| s.update_tags(p)),
];

/// Whether a method concerns one port.
pub fn of_port(method: &str) -> bool {
    matches!(
        method,
        "clear_tpg_stats"
            | "clear_tpg_tx_stats"
            | "clear_tpg_unknown_tags"
            | "clear_updated"
            | "get_tpg_stats"
            | "get_tpg_tx_stats"
            | "get_tpg_unknown_tags"
    )
}

impl Server {
    // State

    /// The enabled groups of a port's user.
    fn tagged_of(&self, port: usize) -> Option<(&String, &Tagged)> {
        let enabled = |(_, tagged): &(&String, &Tagged)| {
            tagged.state == State::Enabled && tagged.ports.contains(&port)
        };
        self.tagged.iter().find(enabled)
    }

    fn enabled(&self, port: usize) -> Result<&Tagged, Refusal> {
        self.tagged_of(port).map(|(_, tagged)| tagged).ok_or_else(|| {
            let text = format!("tagged packet groups are not enabled on port {port}");
            Refusal::failed(text)
        })
    }

    /// The groups of a port that counts received packets.
    fn counting(&self, port: usize) -> Result<&Tagged, Refusal> {
        let tagged = self.enabled(port)?;
        match tagged.rx_ports.contains(&port) {
            true => Ok(tagged),
            false => Err(Refusal::failed(format!(
                "port {port} does not count tagged packet groups: it is not among rx_ports"
            ))),
        }
    }

    fn enabled_for(&mut self, user: &str) -> Result<&mut Tagged, Refusal> {
        self.tagged
            .get_mut(user)
            .filter(|tagged| tagged.state == State::Enabled)
            .ok_or_else(|| Refusal::failed("tagged packet groups are not enabled"))
    }

    fn enable_tagged(&mut self, params: &Params<'_>) -> Answer {
        let user = params.text("username")?.to_owned();
        match self.tagged.get_mut(&user) {
            Some(tagged) if tagged.state == State::Allocated => {
                tagged.state = State::Enabled;
                return Ok(json!({}));
            }
            // A client that was interrupted sends no second `disable_tpg`.
            Some(tagged) if tagged.state == State::Freed => {}
            Some(_) => {
                let text = format!("tagged packet groups are enabled already for {user}");
                return Err(Refusal::failed(text));
            }
            None => {}
        }
        let session = params.whole("session_id")?;
        let mut ports = [Vec::new(), Vec::new()];
        for (list, key) in ports.iter_mut().zip(["ports", "rx_ports"]) {
            for port in params.list(key)? {
                let found = port.as_u64().and_then(|port| usize::try_from(port).ok());
                let owner = found.and_then(|port| self.ports.get(port)?.owner.as_ref());
                let owned = owner.is_some_and(|own| own.user == user && own.session == session);
                let port = found.filter(|_| owned).ok_or_else(|| {
                    Refusal::failed(format!("{key}: port {port} is not acquired by {user}"))
                })?;
                if let Some((other, _)) =
                    self.tagged.iter().find(|(_, tagged)| tagged.ports.contains(&port))
                {
                    let text = format!("{key}: port {port} has tagged packet groups of {other}");
                    return Err(Refusal::failed(text));
                }
                list.push(port);
            }
        }
        let [ports, rx_ports] = ports;
        // Without ports, nothing would remove the groups of a user that has left.
        if ports.is_empty() {
            return Err(Refusal::failed("ports: expected one or more acquired ports"));
        }
        if let Some(port) = rx_ports.iter().find(|port| !ports.contains(port)) {
            let text = format!("rx_ports: port {port} is not among ports");
            return Err(Refusal::failed(text));
        }
        let groups = number(params, "num_tpgids")?;
        let tags = Tags::new(params.list("tags")?.iter().map(Tag::from_json));
        let tags = tags.map_err(|why| Refusal::failed(format!("tags: {why}")))?;
        for port in &rx_ports {
            self.traffic.receiver(*port).set(Some(Received::new(groups, tags.clone())));
        }
        let (state, cleared) = (State::Allocated, HashMap::new());
        self.tagged.insert(user, Tagged { ports, rx_ports, groups, tags, state, cleared });
        Ok(json!({}))
    }

    fn disable_tagged(&mut self, params: &Params<'_>) -> Answer {
        let user = params.text("username")?.to_owned();
        match self.tagged.get(&user).map(|tagged| tagged.state) {
            Some(State::Freed) => {
                self.tagged.remove(&user);
            }
            Some(_) => self.free_tagged(&user),
            None => return Err(Refusal::failed("tagged packet groups are not enabled")),
        }
        Ok(json!({}))
    }

    /// Ends counting for a user.
    fn free_tagged(&mut self, user: &str) {
        let Some(tagged) = self.tagged.get_mut(user) else { return };
        tagged.state = State::Freed;
        let (ports, rx_ports) = (mem::take(&mut tagged.ports), mem::take(&mut tagged.rx_ports));
        // Only the state is needed until the second `disable_tpg`, which may never come.
        (tagged.tags, tagged.cleared) = (Tags::default(), HashMap::new());
        for port in rx_ports {
            self.traffic.receiver(port).set(None);
        }
        self.traffic.forget_tagged(&ports);
    }

    /// Whether a port must stay acquired because of tagged packet groups.
    pub(super) fn has_tagged(&self, port: usize) -> bool {
        self.tagged.values().any(|tagged| tagged.ports.contains(&port))
    }

    /// Removes the groups of a port whose owner has lost it.
    pub(super) fn lose_tagged(&mut self, port: usize) {
        let users = self.tagged.iter().filter(|(_, tagged)| tagged.ports.contains(&port));
        for user in users.map(|(user, _)| user.clone()).collect::<Vec<_>>() {
            self.free_tagged(&user);
            self.tagged.remove(&user);
        }
    }

    // Streams

    /// Checks that a stream can be added to a port.
    pub(super) fn check_tagged(&self, port: usize, stream: &Stream) -> Result<(), Refusal> {
        let Some(group) = stream.tagged_group() else { return Ok(()) };
        let groups = self.enabled(port)?.groups;
        if group >= groups {
            let text = format!("tpgid = {group}: expected less than num_tpgids, {groups}");
            return Err(Refusal::failed(text));
        }
        let streams = self.ports[port].profiles.values().flat_map(|profile| &profile.streams);
        match streams.into_iter().find(|(_, other)| other.tagged_group() == Some(group)) {
            // The sequence numbers of a group are those of one stream.
            Some((other, _)) => {
                Err(Refusal::failed(format!("tpgid = {group}: stream {other} has it already")))
            }
            None => Ok(()),
        }
    }

    /// Continues the sequence numbers of each group where its last stream has stopped.
    pub(super) fn number_tagged(
        &self,
        port: usize,
        sent: &mut Sent,
        streams: &BTreeMap<u32, Stream>,
    ) -> Result<(), Refusal> {
        for one in sent {
            let Some(group) = streams.get(&one.number).and_then(Stream::tagged_group) else {
                continue;
            };
            self.enabled(port)?;
            let (packets, _) = self.traffic.sent_tagged(port, group);
            if let Some(sequence) = one.stream.vary.last_mut() {
                sequence.op = vm::sequence_from(packets as u32);
            }
        }
        Ok(())
    }

    // Tags

    /// The user that a request names, by name or by a port, if their groups are enabled.
    fn tagged_asked(
        &self,
        port: usize,
        params: &Params<'_>,
    ) -> Result<Option<(&String, &Tagged)>, Refusal> {
        let user = params.get("username").and_then(Value::as_str).filter(|user| !user.is_empty());
        match (user, params.get("port_id").is_some()) {
            (Some(user), false) => {
                let tagged = self.tagged.get_key_value(user);
                Ok(tagged.filter(|(_, tagged)| tagged.state == State::Enabled))
            }
            (None, true) => Ok(self.tagged_of(port)),
            _ => Err(Refusal::failed("expected either port_id or username")),
        }
    }

    fn tagged_status(&self, port: usize, params: &Params<'_>) -> Answer {
        let found = self.tagged_asked(port, params)?;
        let (user, tagged) = found.map_or(("-", None), |(user, tagged)| (user, Some(tagged)));
        Ok(json!({
            "enabled": tagged.is_some(),
            "data": {
                "acquired_ports": tagged.map_or(&[][..], |tagged| &tagged.ports[..]),
                "rx_ports": tagged.map_or(&[][..], |tagged| &tagged.rx_ports[..]),
                "username": user,
                "num_tpgids": tagged.map_or(0, |tagged| tagged.groups),
                "num_tags": tagged.map_or(0, |tagged| tagged.tags.len()),
            },
        }))
    }

    fn tagged_tags(&self, port: usize, params: &Params<'_>) -> Answer {
        let (_, tagged) = self
            .tagged_asked(port, params)?
            .ok_or_else(|| Refusal::failed("tagged packet groups are not enabled"))?;
        let (first, end) = range(params, &tagged.tags)?;
        if first == end {
            return Err(Refusal::failed("min_tag: expected less than max_tag"));
        }
        let tags = &tagged.tags.list()[usize::from(first)..usize::from(end)];
        Ok(tags.iter().map(|tag| tag.map_or(Value::Null, Tag::to_json)).collect())
    }

    fn update_tags(&mut self, params: &Params<'_>) -> Answer {
        let user = params.text("username")?;
        let tagged = self.enabled_for(user)?;
        let mut tags = tagged.tags.clone();
        for tag in params.list("tags")? {
            update(&mut tags, tag).map_err(|why| Refusal::failed(format!("tags: {why}")))?;
        }
        tagged.tags = tags.clone();
        for port in tagged.rx_ports.clone() {
            self.traffic.receiver(port).lock().set_tags(tags.clone());
        }
        Ok(json!({}))
    }

    // Counters

    fn tagged_stats(&self, port: usize, params: &Params<'_>) -> Answer {
        let tagged = self.counting(port)?;
        let group = group_of(params, tagged)?;
        let (first, end) = range(params, &tagged.tags)?;
        let received = self.traffic.receiver(port).lock();
        let mut all = Map::new();
        if first < end {
            all.extend([received.section(group, first, end)]);
        }
        all.extend(others(params, first == end)?.map(|class| received.shown(group, class)));
        Ok(json!({ port.to_string(): { group.to_string(): all } }))
    }

    fn clear_tagged(&self, port: usize, params: &Params<'_>) -> Answer {
        let tagged = self.counting(port)?;
        let group = group_of(params, tagged)?;
        let listed = params.get("tag_list").is_some();
        let ranged = params.get("max_tag").is_some();
        let (tags, none): (Vec<u16>, bool) = match (listed, ranged) {
            (true, false) => (listed_tags(params, &tagged.tags)?, false),
            (false, true) => {
                let (first, end) = range(params, &tagged.tags)?;
                ((first..end).collect(), first == end)
            }
            _ => return Err(Refusal::failed("expected either max_tag or tag_list")),
        };
        let classes = tags.into_iter().map(Class::Tag).chain(others(params, none)?);
        self.traffic.receiver(port).lock().clear(group, classes);
        Ok(json!({}))
    }

    /// Clears the counters of tags that have changed, for a range of groups.
    fn clear_updated(&mut self, port: usize, params: &Params<'_>) -> Answer {
        self.enabled_for(params.text("username")?)?;
        let tagged = self.counting(port)?;
        let (first, end) = (number(params, "min_tpgid")?, number(params, "max_tpgid")?);
        if end > tagged.groups || first >= end {
            return Err(Refusal::failed(format!(
                "min_tpgid = {first}, max_tpgid = {end}: expected a range within 0 to {}",
                tagged.groups
            )));
        }
        let tags = listed_tags(params, &tagged.tags)?;
        if u64::from(end - first) * tags.len() as u64 > MOST_CLEARED {
            let text =
                format!("more than {MOST_CLEARED} counters at a time: expected fewer groups");
            return Err(Refusal::failed(text));
        }
        let mut received = self.traffic.receiver(port).lock();
        for group in first..end {
            received.clear(group, tags.iter().copied().map(Class::Tag));
        }
        Ok(json!({}))
    }

    fn tagged_sent(&self, port: usize, params: &Params<'_>) -> Answer {
        let tagged = self.enabled(port)?;
        let group = group_of(params, tagged)?;
        let (packets, octets) = self.traffic.sent_tagged(port, group);
        let before = tagged.cleared.get(&(port, group)).copied().unwrap_or_default();
        let counts = json!({
            "pkts": packets.saturating_sub(before.0), "bytes": octets.saturating_sub(before.1),
        });
        Ok(json!({ port.to_string(): { group.to_string(): counts } }))
    }

    fn clear_tagged_sent(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let group = group_of(params, self.enabled(port)?)?;
        let sent = self.traffic.sent_tagged(port, group);
        let tagged = self.tagged.values_mut().find(|tagged| tagged.ports.contains(&port));
        tagged.into_iter().for_each(|tagged| {
            tagged.cleared.insert((port, group), sent);
        });
        Ok(json!({}))
    }
}

/// Replaces the tag that an entry names, or removes it if it has no type.
fn update(tags: &mut Tags, entry: &Value) -> Result<(), String> {
    let index = entry["tag_id"].as_u64().and_then(|index| u16::try_from(index).ok());
    let index = index.ok_or("tag_id: expected a number below 65,536")?;
    let removed = entry["type"].as_str().is_none_or(str::is_empty);
    let tag = if removed { None } else { Some(Tag::from_json(entry)?) };
    tags.set(index, tag)
}

fn group_of(params: &Params<'_>, tagged: &Tagged) -> Result<u32, Refusal> {
    let (group, groups) = (number(params, "tpgid")?, tagged.groups);
    match group < groups {
        true => Ok(group),
        false => {
            let text = format!("tpgid = {group}: expected less than num_tpgids, {groups}");
            Err(Refusal::failed(text))
        }
    }
}

/// The range of tags in a request: the first, and the one after the last.
fn range(params: &Params<'_>, tags: &Tags) -> Result<(u16, u16), Refusal> {
    let (first, end) = (params.whole("min_tag")?, params.whole("max_tag")?);
    match first <= end && end <= tags.len() as u64 {
        true => Ok((first as u16, end as u16)),
        false => Err(Refusal::failed(format!(
            "min_tag = {first}, max_tag = {end}: expected a range within 0 to {}",
            tags.len()
        ))),
    }
}

/// The classes without a known tag that a request names. `needed`: it names no tags.
fn others(params: &Params<'_>, needed: bool) -> Result<impl Iterator<Item = Class>, Refusal> {
    let classes = [("untagged", Class::Untagged), ("unknown_tag", Class::Unknown)];
    let asked = classes.map(|(key, class)| params.flag(key).then_some(class));
    match needed && asked == [None, None] {
        true => Err(Refusal::failed(
            "min_tag can equal max_tag only with unknown_tag or untagged: expected tags",
        )),
        false => Ok(asked.into_iter().flatten()),
    }
}

fn listed_tags(params: &Params<'_>, tags: &Tags) -> Result<Vec<u16>, Refusal> {
    let one = |tag: &Value| {
        let found = tag.as_u64().filter(|index| *index < tags.len() as u64);
        found.map(|index| index as u16).ok_or_else(|| {
            Refusal::failed(format!("tag_list: {tag}: expected less than {}", tags.len()))
        })
    };
    params.list("tag_list")?.iter().map(one).collect()
}

/// The group for which packets of a stream on a port are counted.
pub fn counted(port: usize, stream: &Stream) -> Option<Group> {
    let tagged = stream.tagged_group().map(|group| Group::Tagged { port, group });
    stream.group().map(Group::Packets).or(tagged)
}
