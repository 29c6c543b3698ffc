//! The sessions, as the application of the stack.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, VecDeque},
    fmt, iter,
    net::IpAddr,
    sync::Arc,
};

use squall_bgp::{
    EndReason, Envelope, Family, Input, Learnt, LearntChange, Negotiated, Output, Packed, PathIds,
    PeerSettings, Prefix, RouteAttributes, Session, State, UpdateKind, Way, pack, room,
};
use squall_tcp::{Application, ClassId, Event, Piece, Reason, Socket, Tuple};
use squall_units::Nanos;

use crate::connections::{Connection, Connections, Tag};

/// The port of BGP (RFC 4271 section 8.2.1).
pub(crate) const PORT: u16 = 179;
/// Octets of routes in a piece at most, but one message at least.
const RUN: u32 = 1 << 16;
/// The same for routes with attributes of their own, whose UPDATEs are kept until they are
/// acknowledged: 128 KiB of a session.
const OWN_RUN: u32 = 1 << 14;

/// Time in which a closed connection may deliver its queue, the NOTIFICATION at its end. Without a
/// limit, a peer with a closed window would keep the connection open (RFC 9293 section 3.8.6.1).
const LINGER: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Makes the prefixes of a group, each time in the same order.
pub type Prefixes = Arc<dyn Fn() -> Box<dyn Iterator<Item = Prefix>> + Send + Sync>;

/// The routes of a group by their attributes.
pub trait RouteSets: Send + Sync {
    /// Number of sets of attributes.
    fn count(&self) -> usize;
    fn attributes(&self, set: usize) -> RouteAttributes;
    /// The prefixes that have them.
    fn prefixes(&self, set: usize) -> Box<dyn Iterator<Item = Prefix> + '_>;
    /// The set that has a prefix of the group.
    fn set_of(&self, prefix: Prefix) -> usize;
}

/// Routes that are announced and withdrawn together.
#[derive(Clone)]
pub struct SpeakerGroup {
    pub attributes: RouteAttributes,
    pub prefixes: Prefixes,
    /// The same routes, if they have different attributes: `attributes` are none of them then.
    pub sets: Option<Arc<dyn RouteSets>>,
    /// Announced from the start.
    pub is_announced: bool,
    /// Numbers of the peers that get the routes; `None`: all.
    pub peers: Option<Vec<usize>>,
    /// Identifier of the paths (RFC 7911); `None`: the number of the group, from 1.
    pub path: Option<u32>,
}

impl SpeakerGroup {
    fn has(&self, peer: usize) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.contains(&peer))
    }
}

impl fmt::Debug for SpeakerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attributes, prefixes: _, sets: _, is_announced, peers, path } = self;
        let mut group = f.debug_struct("SpeakerGroup");
        group.field("attributes", attributes).field("is_announced", is_announced);
        group.field("peers", peers).field("path", path);
        group.finish_non_exhaustive()
    }
}

/// A session with the routes that it learns and announces.
#[derive(Debug)]
pub struct Peer {
    pub session: Session,
    pub learnt: Learnt,
    pub local: IpAddr,
    pub remote: IpAddr,
    /// Routes in UPDATEs that were queued, announced and withdrawn.
    pub announced: u64,
    pub withdrawn: u64,
    /// When everything was acknowledged that was to be sent at the last start of the session.
    pub fed_at: Option<Nanos>,
    /// When the session was established first.
    pub first_up: Option<Nanos>,
    /// The connections that the session has, by [`Way`].
    pub(crate) connections: [Option<u32>; 2],
    tasks: VecDeque<Task>,
    /// Families whose routes the peer has asked for, with the first and the last message of the
    /// answer.
    asked: [Option<[Vec<u8>; 2]>; 2],
    /// When it is in the queue of timers.
    armed: Option<Nanos>,
    /// Its next connection waits for the neighbor's MAC address.
    pub(crate) is_resolving: bool,
}

/// Something to send after the queued pieces.
#[derive(Debug)]
enum Task {
    Message(Vec<u8>),
    Routes {
        group: usize,
        family: Family,
        kind: UpdateKind,
        /// `None`: all routes of the group.
        some: Option<Arc<[Prefix]>>,
        /// The set of their attributes; `None`: they are those of the group.
        set: Option<usize>,
        /// Made when the routes before them are queued.
        part: Option<Part>,
    },
    /// Announces all routes of a group with different attributes.
    Sets {
        group: usize,
        family: Family,
        /// The first set that is not begun, and the rest of the one before.
        next: usize,
        part: Option<Part>,
    },
}

impl Task {
    fn routes(group: usize, family: Family, kind: UpdateKind, some: Option<Arc<[Prefix]>>) -> Self {
        Self::Routes { group, family, kind, some, set: None, part: None }
    }

    /// Announces all routes of a group, `of`, but those that are `withdrawn` alone.
    fn all(
        of: &SpeakerGroup,
        group: usize,
        family: Family,
        withdrawn: &BTreeSet<Prefix>,
    ) -> impl Iterator<Item = Self> {
        let all = match of.sets {
            Some(_) => Self::Sets { group, family, next: 0, part: None },
            None => Self::routes(group, family, UpdateKind::Announce, None),
        };
        // All are packed together, and few are withdrawn alone: these follow.
        let some = (!withdrawn.is_empty()).then(|| withdrawn.iter().copied().collect());
        let rest = some.map(|some| Self::routes(group, family, UpdateKind::Withdraw, Some(some)));
        iter::once(all).chain(rest)
    }
}

/// Routes of a group as a session sends them.
#[derive(Debug)]
struct Part {
    packed: Packed,
    envelope: Arc<Envelope>,
    /// The first message that is not queued.
    next: u32,
}

/// Something that needs the whole stack.
#[derive(Debug)]
pub(crate) enum Todo {
    Connect(u32),
    Send(u32, Vec<u8>),
    Close(u32),
    Abort(u32),
    /// Queue what a peer has to send.
    Pump(u32),
}

/// Group, family, octets of a message, with path identifiers: routes are packed once for each.
type PackedKey = (usize, Family, usize, bool);

/// All sessions.
pub(crate) struct Peers {
    pub all: Vec<Peer>,
    by_ends: HashMap<(IpAddr, IpAddr), u32>,
    pub groups: Vec<SpeakerGroup>,
    /// Routes of each announced group that are withdrawn alone. Ordered: the same seed gives the
    /// same frames.
    withdrawn: Vec<BTreeSet<Prefix>>,
    packed: HashMap<PackedKey, Packed>,
    pub connections: Connections,
    pub todo: VecDeque<Todo>,
    /// Connections that were closed, and when they are reset, in order.
    closing: VecDeque<(Nanos, u32)>,
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    pub class: ClassId,
    outputs: Vec<Output>,
    /// Changes of learnt routes that were not taken yet.
    changes: Vec<LearntChange>,
}

impl Peers {
    pub fn new(groups: Vec<SpeakerGroup>) -> Self {
        Self {
            all: Vec::new(),
            by_ends: HashMap::new(),
            withdrawn: vec![BTreeSet::new(); groups.len()],
            groups,
            packed: HashMap::new(),
            connections: Connections::default(),
            todo: VecDeque::new(),
            closing: VecDeque::new(),
            timers: BinaryHeap::new(),
            class: ClassId::STRAY,
            outputs: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Keeps changes of the learnt routes of all sessions until they are taken.
    pub fn keep_changes(&mut self) {
        self.all.iter_mut().for_each(|peer| peer.learnt.keep_changes());
    }

    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub fn take_changes(&mut self) -> Vec<LearntChange> {
        std::mem::take(&mut self.changes)
    }

    /// Adds a session between two addresses.
    pub fn add(&mut self, session: Session, (local, remote): (IpAddr, IpAddr), learnt: Learnt) {
        self.by_ends.insert((local, remote), self.all.len() as u32);
        self.all.push(Peer {
            session,
            learnt,
            local,
            remote,
            announced: 0,
            withdrawn: 0,
            fed_at: None,
            first_up: None,
            connections: [None; 2],
            tasks: VecDeque::new(),
            asked: [None, None],
            armed: None,
            is_resolving: false,
        });
    }

    /// Passes an input to a session, and handles its outputs.
    pub fn handle(&mut self, now: Nanos, number: u32, input: Input<'_>) {
        let Some(peer) = self.all.get_mut(number as usize) else { return };
        let mut outputs = std::mem::take(&mut self.outputs);
        peer.session.handle(now, input, &mut outputs, &mut peer.learnt);
        peer.learnt.take_changes(&mut self.changes);
        peer.first_up = peer.first_up.or(peer.session.established_at());
        for output in outputs.drain(..) {
            self.take(number, output);
        }
        self.outputs = outputs;
        self.arm(number);
    }

    fn take(&mut self, number: u32, output: Output) {
        let peer = &mut self.all[number as usize];
        match output {
            Output::Connect => self.todo.push_back(Todo::Connect(number)),
            Output::Send(way, message) => {
                let connection = peer.connections[way as usize];
                self.todo.extend(connection.map(|connection| Todo::Send(connection, message)));
            }
            Output::Feed { family, end } => {
                self.feed(number, family, end);
                self.todo.push_back(Todo::Pump(number));
            }
            Output::Refeed { family, begin, end } => {
                peer.asked[family.index()] = Some([begin, end]);
                self.todo.push_back(Todo::Pump(number));
            }
            Output::Unfeed => {
                peer.tasks.clear();
                peer.asked = [None, None];
                peer.fed_at = None;
            }
            Output::Close(way) => self.leave(number, way, Todo::Close),
            Output::Abort(way) => {
                if way == Way::Active {
                    self.all[number as usize].is_resolving = false;
                }
                self.leave(number, way, Todo::Abort);
            }
        }
    }

    /// Adds the routes of a family to what a session has to send, and a message after them.
    fn feed(&mut self, number: u32, family: Family, end: Vec<u8>) {
        let peer = &mut self.all[number as usize];
        let is_fed = |of: &SpeakerGroup| of.is_announced && of.has(number as usize);
        let groups = self.groups.iter().enumerate().filter(|(_, group)| is_fed(group));
        for (group, of) in groups {
            peer.tasks.extend(Task::all(of, group, family, &self.withdrawn[group]));
        }
        if !end.is_empty() {
            peer.tasks.push_back(Task::Message(end));
        }
    }

    /// Begins the answer to a request for routes. Returns whether there was one.
    fn refeed(&mut self, number: u32) -> bool {
        let peer = &mut self.all[number as usize];
        let ask = |family: Family| Some((family, peer.asked[family.index()].take()?));
        let Some((family, [begin, end])) = Family::ALL.into_iter().find_map(ask) else {
            return false;
        };
        if !begin.is_empty() {
            self.all[number as usize].tasks.push_back(Task::Message(begin));
        }
        self.feed(number, family, end);
        true
    }

    /// The session has ended a connection.
    fn leave(&mut self, number: u32, way: Way, todo: fn(u32) -> Todo) {
        let Some(connection) = self.all[number as usize].connections[way as usize].take() else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.is_live = false;
        }
        self.todo.push_back(todo(connection));
    }

    // Timers.

    fn arm(&mut self, number: u32) {
        let peer = &mut self.all[number as usize];
        let Some(due) = peer.session.next_due() else { return };
        // Most timers are postponed before they are due: an earlier entry stays.
        if peer.armed.is_none_or(|armed| due < armed) {
            peer.armed = Some(due);
            self.timers.push(Reverse((due, number)));
        }
    }

    pub fn next_due(&self) -> Option<Nanos> {
        let timer = self.timers.peek().map(|Reverse((due, _))| *due);
        let end = self.closing.front().map(|(due, _)| *due);
        timer.into_iter().chain(end).min()
    }

    /// A connection was closed at `now`: it has some time to end.
    pub fn close(&mut self, now: Nanos, connection: u32) {
        let Some(of) = self.connections.get_mut(connection) else { return };
        if of.reset_due.is_none() {
            of.reset_due = Some(now + LINGER);
            self.closing.push_back((now + LINGER, connection));
        }
    }

    /// Resets the closed connections whose time is over.
    fn end_closing(&mut self, now: Nanos) {
        while let Some((due, connection)) = self.closing.front().copied() {
            // Numbers are used again: another connection has no such time, or another one.
            let of = self.connections.get(connection);
            let is_open = of.is_some_and(|of| of.reset_due == Some(due));
            if is_open && due > now {
                break;
            }
            self.closing.pop_front();
            if is_open {
                self.todo.push_back(Todo::Abort(connection));
            }
        }
    }

    pub fn advance(&mut self, now: Nanos) {
        self.end_closing(now);
        while let Some(Reverse((due, number))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            let peer = &mut self.all[number as usize];
            // An earlier entry has replaced this one.
            if peer.armed != Some(due) {
                continue;
            }
            peer.armed = None;
            match peer.session.next_due() {
                Some(due) if due <= now => self.handle(now, number, Input::Timer),
                _ => self.arm(number),
            }
        }
    }

    // Routes.

    /// Announces or withdraws a group in all sessions that are up.
    pub fn set_announced(&mut self, group: usize, announced: bool) {
        let Some(of) = self.groups.get_mut(group) else { return };
        let is_same = std::mem::replace(&mut of.is_announced, announced) == announced;
        let withdrawn = std::mem::take(&mut self.withdrawn[group]);
        match (announced, is_same) {
            (true, true) => {
                let some = withdrawn.into_iter().collect();
                self.send(group, UpdateKind::Announce, Some(some));
            }
            (true, false) => self.send(group, UpdateKind::Announce, None),
            (false, true) => {}
            (false, false) => self.send(group, UpdateKind::Withdraw, None),
        }
    }

    /// Announces or withdraws some routes of a group that is announced. Routes that are already so
    /// are left out.
    pub fn set_routes(&mut self, group: usize, kind: UpdateKind, mut prefixes: Vec<Prefix>) {
        if !self.groups.get(group).is_some_and(|of| of.is_announced) {
            return;
        }
        let withdrawn = &mut self.withdrawn[group];
        prefixes.retain(|prefix| match kind {
            UpdateKind::Announce => withdrawn.remove(prefix),
            UpdateKind::Withdraw => withdrawn.insert(*prefix),
        });
        self.send(group, kind, Some(prefixes.into()));
    }

    /// Sends routes of a group in all sessions that are up; `None`: all routes.
    fn send(&mut self, group: usize, kind: UpdateKind, some: Option<Arc<[Prefix]>>) {
        if some.as_ref().is_some_and(|some| some.is_empty()) {
            return;
        }
        let Some(of) = self.groups.get(group) else { return };
        let by_set = match (kind, &of.sets, &some) {
            (UpdateKind::Announce, Some(sets), Some(some)) => by_set(&**sets, some),
            _ => None,
        };
        let has = |number: usize| of.has(number);
        for (number, peer) in self.all.iter_mut().enumerate().filter(|(number, _)| has(*number)) {
            let Some((_, agreed)) = peer.session.established() else { continue };
            // Routes that are deferred follow with all others.
            let is_fed =
                |it: &Family| agreed.families[it.index()] && !peer.session.is_deferred(*it);
            for family in Family::ALL.into_iter().filter(is_fed) {
                if kind == UpdateKind::Withdraw || of.sets.is_none() {
                    peer.tasks.push_back(Task::routes(group, family, kind, some.clone()));
                    continue;
                }
                let Some(parts) = &by_set else {
                    peer.tasks.extend(Task::all(of, group, family, &self.withdrawn[group]));
                    continue;
                };
                peer.tasks.extend(parts.iter().map(|(set, some)| Task::Routes {
                    group,
                    family,
                    kind,
                    some: Some(some.clone()),
                    set: Some(*set),
                    part: None,
                }));
            }
            self.todo.push_back(Todo::Pump(number as u32));
        }
    }

    /// Number of copies of packed routes.
    #[cfg(test)]
    pub fn packed_len(&self) -> usize {
        self.packed.values().filter(|packed| packed.messages() > 0).count()
    }

    /// Whether a session has nothing left to send, and its peer has acknowledged everything.
    fn is_acknowledged(&self, peer: &Peer) -> bool {
        let mut open = peer.connections.iter().flatten();
        let has_none =
            |number: &u32| self.connections.get(*number).is_none_or(Connection::is_empty);
        peer.tasks.is_empty() && open.all(has_none)
    }

    /// Whether that is so for all sessions.
    pub fn all_acknowledged(&self) -> bool {
        self.todo.is_empty() && self.all.iter().all(|peer| self.is_acknowledged(peer))
    }

    /// The connection on which a session is established.
    pub fn established(&self, number: u32) -> Option<u32> {
        let peer = self.all.get(number as usize)?;
        peer.connections[peer.session.established()?.0 as usize]
    }

    /// Queues as much as has room of what the session of a connection has to send.
    pub fn pump(&mut self, connection: u32, socket: &mut Socket<'_, Tag>) {
        let Some(number) = self.connections.get(connection).map(|it| it.peer) else { return };
        if self.established(number) != Some(connection) {
            return;
        }
        loop {
            let peer = &mut self.all[number as usize];
            let Some(of) = self.connections.get_mut(connection).filter(|it| it.has_room()) else {
                return;
            };
            let piece = match peer.tasks.front_mut() {
                // One answer waits at most: a peer that reads nothing may ask again and again.
                None => match of.is_empty() && self.refeed(number) {
                    true => continue,
                    false => break,
                },
                Some(Task::Message(message)) => {
                    let message = std::mem::take(message);
                    peer.tasks.pop_front();
                    peer.session.count_message(&message);
                    of.push_message(message)
                }
                Some(Task::Routes { part: Some(part), kind, .. }) => {
                    let messages = part.packed.run(&part.envelope, part.next, RUN);
                    if messages.is_empty() {
                        peer.tasks.pop_front();
                        continue;
                    }
                    part.next = messages.end;
                    let routes = u64::from(part.packed.routes(messages.clone()));
                    match kind {
                        UpdateKind::Announce => peer.announced += routes,
                        UpdateKind::Withdraw => peer.withdrawn += routes,
                    }
                    peer.session.count_updates(messages.len() as u64);
                    of.push_routes(&part.packed, &part.envelope, messages)
                }
                Some(Task::Sets { group, family, next, part }) => {
                    let negotiated = peer.session.established().map(|(_, agreed)| *agreed);
                    let sets = self.groups.get(*group);
                    let sets = sets.and_then(|of| Some((of.path, of.sets.as_deref()?)));
                    let Some((agreed, (path, sets))) = negotiated.zip(sets) else {
                        peer.tasks.pop_front();
                        continue;
                    };
                    let own = *peer.session.settings();
                    let key = (*group, path, *family);
                    let (mut updates, mut count) = (Vec::new(), 0);
                    while (updates.len() as u32) < OWN_RUN {
                        let Some(current) = part else {
                            if *next >= sets.count() {
                                break;
                            }
                            *part = part_of(sets, *next, key, &agreed, &own);
                            *next += 1;
                            continue;
                        };
                        let Part { packed, envelope, next: first } = current;
                        let left = OWN_RUN - updates.len() as u32;
                        let messages = packed.run(envelope, *first, left);
                        if messages.is_empty() {
                            *part = None;
                            continue;
                        }
                        let (from, len) = (updates.len(), packed.len(envelope, messages.clone()));
                        // The next one does not fit. Alone, a long one may have more.
                        if from > 0 && len > left {
                            break;
                        }
                        *first = messages.end;
                        count += messages.len() as u64;
                        peer.announced += u64::from(packed.routes(messages.clone()));
                        updates.resize(from + len as usize, 0);
                        packed.copy(envelope, messages, 0, &mut updates[from..]);
                    }
                    if updates.is_empty() {
                        peer.tasks.pop_front();
                        continue;
                    }
                    peer.session.count_updates(count);
                    of.push_updates(updates)
                }
                Some(Task::Routes { group, family, kind, some, set, part: part @ None }) => {
                    let made = peer.session.established().and_then(|(_, agreed)| {
                        let own = peer.session.settings();
                        let of = self.groups.get(*group)?;
                        let of_set = set.zip(of.sets.as_ref());
                        let of_set = of_set.map(|(set, sets)| sets.attributes(set));
                        let attributes = of_set.as_ref().unwrap_or(&of.attributes);
                        let envelope = match kind {
                            UpdateKind::Announce => {
                                Envelope::announce(*family, attributes, agreed, own)?
                            }
                            UpdateKind::Withdraw => Envelope::withdraw(*family),
                        };
                        Some((envelope, *agreed))
                    });
                    let made = made.and_then(|(envelope, agreed)| {
                        let room = room(*family, agreed.most, envelope.overhead())?;
                        let key = (*group, *family, room, agreed.add_path_send[family.index()]);
                        let SpeakerGroup { prefixes, path, .. } = self.groups.get(*group)?;
                        let packed = match some {
                            Some(some) => pack_routes(key, *path, some.iter().copied()),
                            None => {
                                let all = &mut self.packed;
                                let pack = || pack_routes(key, *path, prefixes());
                                all.entry(key).or_insert_with(pack).clone()
                            }
                        };
                        Some(Part { packed, envelope: Arc::new(envelope), next: 0 })
                    });
                    match made {
                        Some(made) => *part = Some(made),
                        None => _ = peer.tasks.pop_front(),
                    }
                    continue;
                }
            };
            if socket.send(piece).is_err() {
                return;
            }
        }
    }

    fn acknowledged(&mut self, connection: u32, octets: u32, socket: &mut Socket<'_, Tag>) {
        let Some(of) = self.connections.get_mut(connection) else { return };
        of.acknowledge(octets);
        self.pump(connection, socket);
        let Some(of) = self.connections.get(connection) else { return };
        let peer = &mut self.all[of.peer as usize];
        let is_fed = of.is_empty() && peer.tasks.is_empty() && !peer.session.is_deferring();
        if is_fed && peer.session.state() == State::Established && peer.fed_at.is_none() {
            peer.fed_at = Some(socket.now());
        }
    }

    // Connections.

    fn opened(&mut self, connection: u32, socket: &mut Socket<'_, Tag>) {
        let Some(of) = self.connections.get_mut(connection) else { return };
        of.flow = Some(socket.id());
        let (number, way, now) = (of.peer, of.way, socket.now());
        if way == Way::Passive {
            let peer = &mut self.all[number as usize];
            if !peer.session.accepts() {
                of.is_live = false;
                return socket.abort();
            }
            if peer.connections[way as usize].is_some() {
                self.leave(number, way, Todo::Abort);
                self.handle(now, number, Input::Ended(way, EndReason::Replaced));
            }
            self.all[number as usize].connections[way as usize] = Some(connection);
        }
        self.handle(now, number, Input::Opened(way));
    }

    /// TCP or the peer has ended a connection.
    fn ended(&mut self, now: Nanos, connection: u32, reason: EndReason) {
        let Some(of) = self.connections.get_mut(connection) else { return };
        let (number, way) = (of.peer, of.way);
        if std::mem::take(&mut of.is_live) {
            let own = &mut self.all[number as usize].connections[way as usize];
            // One of the peer that was never open is not the session's.
            if *own == Some(connection) {
                *own = None;
                self.handle(now, number, Input::Ended(way, reason));
            }
        }
    }
}

/// The routes of a set that a session announces; `None`: none of the family. `group`: its number,
/// the identifier of its paths, and the family.
fn part_of(
    sets: &dyn RouteSets,
    set: usize,
    (group, path, family): (usize, Option<u32>, Family),
    agreed: &Negotiated,
    own: &PeerSettings,
) -> Option<Part> {
    // Before the attributes are made: half of the sets may be of the other family.
    if !sets.prefixes(set).any(|prefix| prefix.family() == family) {
        return None;
    }
    let envelope = Envelope::announce(family, &sets.attributes(set), agreed, own)?;
    let room = room(family, agreed.most, envelope.overhead())?;
    let key = (group, family, room, agreed.add_path_send[family.index()]);
    let packed = pack_routes(key, path, sets.prefixes(set));
    Some(Part { packed, envelope: Arc::new(envelope), next: 0 })
}

/// Some prefixes by their sets; `None`: there are over 1,000 sets, and each session would have a
/// task for each, so that all routes are better announced again.
fn by_set(sets: &dyn RouteSets, some: &[Prefix]) -> Option<Vec<(usize, Arc<[Prefix]>)>> {
    const MOST: usize = 1_000;
    let mut all: Vec<_> = some.iter().map(|prefix| (sets.set_of(*prefix), *prefix)).collect();
    all.sort_by_key(|(set, _)| *set);
    let parts = || all.chunk_by(|(one, _), (next, _)| one == next);
    (parts().count() <= MOST).then(|| {
        let part = |part: &[(usize, Prefix)]| {
            (part[0].0, part.iter().map(|(_, prefix)| *prefix).collect())
        };
        parts().map(part).collect()
    })
}

/// Packs routes of a group. Groups may announce the same prefix: each is another path.
fn pack_routes(
    (group, family, room, has_paths): PackedKey,
    path: Option<u32>,
    prefixes: impl Iterator<Item = Prefix>,
) -> Packed {
    let path = path.unwrap_or(group as u32 + 1);
    let paths = if has_paths { PathIds::One(path) } else { PathIds::None };
    pack(family, prefixes, room, paths)
}

impl Application for Peers {
    type State = Tag;

    fn event(&mut self, socket: &mut Socket<'_, Tag>, event: Event<'_>) {
        let (connection, now) = (socket.state().0, socket.now());
        match event {
            Event::Established => self.opened(connection, socket),
            Event::Received(octets) => {
                let of = self.connections.get(connection).filter(|of| of.is_live);
                if let Some((peer, way)) = of.map(|of| (of.peer, of.way)) {
                    self.handle(now, peer, Input::Octets(way, octets));
                }
            }
            Event::Acknowledged { octets, .. } => self.acknowledged(connection, octets, socket),
            Event::PeerClosed => {
                self.ended(now, connection, EndReason::Closed);
                socket.close();
                self.close(now, connection);
            }
            Event::Timer | Event::Settle => {}
            Event::Gone(reason) => {
                self.ended(now, connection, end_reason(reason));
                self.connections.remove(connection);
                self.end_closing(now);
            }
        }
    }

    fn copy(&self, state: &Tag, _: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        if let Some(connection) = self.connections.get(state.0) {
            connection.copy(piece, offset, out);
        }
    }

    fn accept(&mut self, _: Nanos, flow: &Tuple) -> Option<(ClassId, Tag)> {
        let number = *self.by_ends.get(&(flow.local, flow.remote))?;
        let accepts = flow.local_port == PORT && self.all[number as usize].session.accepts();
        accepts.then(|| (self.class, Tag(self.connections.add(number, Way::Passive))))
    }

    fn listens(&self, flow: &Tuple) -> bool {
        let peer = self.by_ends.get(&(flow.local, flow.remote));
        flow.local_port == PORT
            && peer.is_some_and(|number| self.all[*number as usize].session.accepts())
    }
}

fn end_reason(reason: Reason) -> EndReason {
    match reason {
        Reason::Closed | Reason::Aborted => EndReason::Closed,
        Reason::Reset => EndReason::Reset,
        Reason::Refused => EndReason::Refused,
        Reason::Unreachable => EndReason::Unreachable,
        Reason::ConnectTimeout | Reason::Timeout | Reason::KeepaliveTimeout | Reason::Idle => {
            EndReason::Timeout
        }
    }
}
