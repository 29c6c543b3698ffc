//! Selection and keys of the view. Turns keys into requests, and the state into frames.

use serde_json::{Value, json};
use squall_report::render::{Overview, RunLine, Selected, Tone, human};
use squall_server::{RunRow, RunState, WatchedHosts, WatchedSource};

use super::{
    keys::Key,
    picture::{Picture, Seen},
};

#[derive(Debug, Default)]
pub struct View {
    /// The run that is shown.
    run: Option<String>,
    selected: Option<Selected>,
    /// The run to stop once `y` is pressed.
    stopping: Option<String>,
    help: bool,
    /// The result of the last key.
    message: Option<(Tone, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Quit,
    Ask(Request),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub path: String,
    pub body: Value,
    /// Message to show on success.
    pub what: String,
}

/// Maximum number of lagging sources to list.
const NAMED: usize = 3;
const KEYS: &str =
    "? keys  ↑ ↓ select  + - rate by 10 %  > < twice, half  p pause  s stop  tab next run  q quit";
const HELP: [&str; 11] = [
    "up, down, k, j    select a port or a stream",
    "+  -              change the stream's rate by 10 %; all rates, if the run has no streams",
    ">  <              double or halve the rate",
    "p                 pause or resume the run",
    "s                 stop the run, after y",
    "tab, shift tab    show the next or the previous run",
    "q, Ctrl-C         end this view, but no run",
    "",
    "Red: frames that did not arrive (LOST), that did not leave or were dropped on arrival (DROPS).",
    "P50, P99: latest one-way delays; MAX: since the start. LATE: how late frames left.",
    "LINK: share of the link's speed in use, in the busier direction.",
];

impl View {
    /// Handles a key. Returns an action that the daemon must perform.
    pub fn press(&mut self, key: Key, picture: &Picture) -> Option<Act> {
        self.settle(picture);
        self.message = None;
        if let Some(id) = self.stopping.take() {
            if key == Key::Char('y') {
                return self.ask(picture, &id, "stop", json!({}), "stopping".into());
            }
            self.message = Some((Tone::Plain, "not stopped".into()));
            return if key == Key::Control('c') { Some(Act::Quit) } else { None };
        }
        if std::mem::take(&mut self.help) && !matches!(key, Key::Char('q') | Key::Control('c')) {
            return None;
        }
        match key {
            Key::Char('q') | Key::Control('c') => return Some(Act::Quit),
            Key::Char('?' | 'h') => self.help = true,
            Key::Up | Key::Char('k') => self.step(picture, -1),
            Key::Down | Key::Char('j') => self.step(picture, 1),
            Key::Tab => self.turn(picture, 1),
            Key::BackTab => self.turn(picture, -1),
            Key::Char('+' | '=') => return self.scale(picture, "1.1", "10 % more"),
            Key::Char('-' | '_') => return self.scale(picture, "0.9", "10 % less"),
            Key::Char('>' | '.') => return self.scale(picture, "2", "doubled"),
            Key::Char('<' | ',') => return self.scale(picture, "0.5", "halved"),
            Key::Char('p') => {
                let seen = self.live(picture)?;
                let (id, name) = (seen.row.id.clone(), seen.row.name.clone());
                return match seen.row.state {
                    RunState::Paused => {
                        self.ask(picture, &id, "resume", json!({}), format!("{name} is resumed"))
                    }
                    _ => self.ask(picture, &id, "pause", json!({}), format!("{name} is paused")),
                };
            }
            Key::Char('s') => self.stopping = Some(self.live(picture)?.row.id.clone()),
            _ => {}
        }
        None
    }

    /// Handles the result of a request.
    pub fn done(&mut self, picture: &mut Picture, request: &Request, done: Result<Value, String>) {
        match done {
            Ok(answer) => {
                if let Ok(row) = serde_json::from_value::<RunRow>(answer) {
                    picture.put(row);
                }
                self.message = Some((Tone::Plain, request.what.clone()));
            }
            Err(why) => self.message = Some((Tone::Fault, why)),
        }
    }

    /// Builds the frame. `lost` has the reason if the connection was lost.
    pub fn overview(
        &mut self,
        url: &str,
        picture: &Picture,
        lost: Option<&str>,
        keys: bool,
    ) -> Overview {
        self.settle(picture);
        let shown = picture.runs.iter().position(|seen| self.run.as_ref() == Some(&seen.row.id));
        let seen = shown.map(|i| &picture.runs[i]);
        let mut foot = Vec::new();
        if let Some(why) = lost {
            foot.push((
                Tone::Fault,
                format!("{}; reconnecting", why.lines().next().unwrap_or_default()),
            ));
        }
        if let Some(error) = seen.and_then(|seen| seen.row.error.as_ref()) {
            foot.push((Tone::Fault, error.lines().next().unwrap_or_default().to_owned()));
        }
        foot.extend(seen.into_iter().flat_map(|seen| &seen.hosts).take(NAMED).map(hosts_line));
        foot.extend(seen.into_iter().flat_map(Seen::lagging).take(NAMED).map(lag_line));
        if let Some((tone, text)) = &self.message {
            foot.extend(text.lines().map(|line| (*tone, line.to_owned())));
        }
        if let Some(id) = &self.stopping {
            let name = picture
                .runs
                .iter()
                .find(|seen| seen.row.id == *id)
                .map_or(id, |seen| &seen.row.name);
            foot.push((Tone::Plain, format!("stop {name}? y: yes, another key: no")));
        }
        if keys {
            foot.push((Tone::Faint, KEYS.to_owned()));
        }
        Overview {
            title: format!("squall top {url}"),
            runs: picture.runs.iter().map(line).collect(),
            shown,
            ports: seen.map(|seen| picture.ports(seen)).unwrap_or_default(),
            streams: seen.map(Seen::streams).unwrap_or_default(),
            selected: self.selected.filter(|_| keys),
            instead: if self.help { HELP.map(str::to_owned).to_vec() } else { Vec::new() },
            foot,
        }
    }

    /// Selects a run if there is one, and a row if the run has one.
    fn settle(&mut self, picture: &Picture) {
        let shown = picture.runs.iter().find(|seen| self.run.as_ref() == Some(&seen.row.id));
        let goes_on = |seen: &&Seen| !seen.row.state.is_over();
        // If the shown run has ended, show an active one instead.
        let seen = shown
            .filter(goes_on)
            .or_else(|| picture.runs.iter().rfind(goes_on))
            .or(shown)
            .or(picture.runs.first());
        let id = seen.map(|seen| seen.row.id.clone());
        if self.run != id {
            (self.run, self.selected) = (id, None);
        }
        let (ports, streams) = seen.map(Seen::rows).unwrap_or_default();
        self.selected = match self.selected {
            Some(Selected::Port(i)) if i < ports => Some(Selected::Port(i)),
            Some(Selected::Stream(i)) if i < streams => Some(Selected::Stream(i)),
            _ if streams > 0 => Some(Selected::Stream(0)),
            _ if ports > 0 => Some(Selected::Port(0)),
            _ => None,
        };
    }

    fn seen<'a>(&self, picture: &'a Picture) -> Option<&'a Seen> {
        picture.runs.iter().find(|seen| self.run.as_ref() == Some(&seen.row.id))
    }

    /// The shown run, if it can be changed. Otherwise sets a message.
    fn live<'a>(&mut self, picture: &'a Picture) -> Option<&'a Seen> {
        let seen = self.seen(picture);
        match seen {
            None => self.message = Some((Tone::Fault, "there is no run".into())),
            Some(seen) if seen.row.state.is_over() => {
                self.message = Some((Tone::Fault, format!("{} is over", seen.row.name)));
                return None;
            }
            Some(_) => {}
        }
        seen
    }

    /// Moves the selection through the ports and then the streams.
    fn step(&mut self, picture: &Picture, by: isize) {
        let (ports, streams) = self.seen(picture).map(Seen::rows).unwrap_or_default();
        let now = match self.selected {
            None => return,
            Some(Selected::Port(i)) => i,
            Some(Selected::Stream(i)) => ports + i,
        };
        let next = now.saturating_add_signed(by).min((ports + streams).saturating_sub(1));
        self.selected =
            Some(if next < ports { Selected::Port(next) } else { Selected::Stream(next - ports) });
    }

    fn turn(&mut self, picture: &Picture, by: isize) {
        // Skip ended runs, unless all runs have ended.
        let live: Vec<_> = picture.runs.iter().filter(|seen| !seen.row.state.is_over()).collect();
        let runs = if live.is_empty() { picture.runs.iter().collect() } else { live };
        let Some(now) = runs.iter().position(|seen| self.run.as_ref() == Some(&seen.row.id)) else {
            return;
        };
        let next = (now as isize + by).rem_euclid(runs.len() as isize) as usize;
        if next != now {
            (self.run, self.selected) = (Some(runs[next].row.id.clone()), None);
        }
    }

    fn scale(&mut self, picture: &Picture, by: &str, what: &str) -> Option<Act> {
        let seen = self.live(picture)?;
        let id = seen.row.id.clone();
        match (self.selected, seen.rows()) {
            (Some(Selected::Stream(i)), _) => {
                let name = seen.stream_name(i)?.to_owned();
                let body = json!({ "stream": name, "by": by });
                self.ask(picture, &id, "rate", body, format!("{name}: {what}"))
            }
            // Flows, replays and attacks have no streams, so change all rates.
            (_, (_, 0)) => {
                self.ask(picture, &id, "rate", json!({ "by": by }), format!("all rates: {what}"))
            }
            _ => {
                self.message =
                    Some((Tone::Fault, "a port has no rate of its own: select a stream".into()));
                None
            }
        }
    }

    fn ask(
        &mut self,
        picture: &Picture,
        id: &str,
        route: &str,
        body: Value,
        what: String,
    ) -> Option<Act> {
        let gone = picture.runs.iter().all(|seen| seen.row.id != id || seen.row.state.is_over());
        if gone {
            self.message = Some((Tone::Fault, "the run is over".into()));
            return None;
        }
        Some(Act::Ask(Request { path: format!("/squall/v1/runs/{id}/{route}"), body, what }))
    }
}

/// Line for a group of hosts, with its hosts by state.
fn hosts_line((name, hosts, started, states, ipv6): &WatchedHosts) -> (Tone, String) {
    let (hosts, started) = (human::count(*hosts), human::count(*started));
    let states: Vec<_> =
        states.iter().map(|(state, count)| format!("{state} {}", human::count(*count))).collect();
    let family = if *ipv6 { "IPv6 " } else { "" };
    let states = match states.is_empty() {
        true => String::new(),
        false => format!("; {family}{}", states.join(", ")),
    };
    (Tone::Plain, format!("hosts {name}: {started} of {hosts} started{states}"))
}

/// Line for a lagging source, with the number due and the number sent.
fn lag_line((name, unit, due, sent, lag_s, _): &WatchedSource) -> (Tone, String) {
    let (due, sent) = (*due, *sent);
    let ratio = human::ratio(sent as f64 / due.max(1) as f64);
    let frames = if unit == "packets" { "frames" } else { unit };
    let (all, asked) = (human::count(sent), human::count(due));
    let late = match *lag_s > 0.0 {
        true => format!(", {} late", human::seconds(*lag_s)),
        false => String::new(),
    };
    let text =
        format!("{name} is behind: sent {all} of {asked} {frames} asked so far ({ratio}){late}");
    (Tone::Fault, text)
}

fn line(seen: &Seen) -> RunLine {
    let row = &seen.row;
    let lagging = seen.lagging().next().is_some();
    RunLine {
        id: row.id.clone(),
        name: row.name.clone(),
        owner: row.owner.clone(),
        state: if lagging { "behind" } else { row.state.word() }.into(),
        elapsed_s: row.elapsed_s,
        duration_s: row.duration_s.filter(|_| !row.state.is_over()),
        failed: lagging || row.state == RunState::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::{event, picture, run};
    use super::*;

    fn asked(view: &mut View, picture: &Picture, key: Key) -> Option<(String, Value)> {
        match view.press(key, picture) {
            Some(Act::Ask(request)) => {
                Some((request.path.replace("/squall/v1/runs/", ""), request.body))
            }
            Some(Act::Quit) => panic!("{key:?} quits"),
            None => None,
        }
    }

    #[test]
    fn keys_change_what_is_selected() {
        let (mut view, picture) = (View::default(), picture());
        let mut press = |key| asked(&mut view, &picture, key);
        for (key, by) in [('+', "1.1"), ('=', "1.1"), ('-', "0.9"), ('>', "2"), ('<', "0.5")] {
            let expected = ("r-1/rate".to_owned(), json!({ "stream": "web", "by": by }));
            assert_eq!(press(Key::Char(key)), Some(expected), "{key}");
        }
        for _ in 0..3 {
            assert_eq!(press(Key::Down), None);
        }
        assert_eq!(press(Key::Char('+')).unwrap().1["stream"], "dns");
        press(Key::Up);
        press(Key::Up);
        assert_eq!(press(Key::Char('+')), None, "a port has no rate");
        assert_eq!(press(Key::Char('p')).unwrap().0, "r-1/pause");
        assert!(view.overview("u", &picture, None, true).selected == Some(Selected::Port(1)));
    }

    #[test]
    fn hosts_are_shown_by_their_state() {
        let (mut view, mut picture) = (View::default(), picture());
        picture.apply(event(
            r#"{"type":"sample","run":"r-1","t_s":2,"ports":[],"streams":[],
                "hosts":[["web",1000,12,{"bound":10,"selecting":2},false],["six",5,5,{"bound":5},true]]}"#,
        ));
        let foot = view.overview("u", &picture, None, false).foot;
        let texts: Vec<_> = foot.iter().map(|(_, text)| text.as_str()).collect();
        let web = "hosts web: 12 of 1,000 started; bound 10, selecting 2";
        assert_eq!(texts, [web, "hosts six: 5 of 5 started; IPv6 bound 5"]);
    }

    #[test]
    fn a_lagging_run_is_shown_at_once() {
        let (mut view, mut picture) = (View::default(), picture());
        picture.apply(event(
            r#"{"type":"sample","run":"r-1","t_s":2,"ports":[],"streams":[],
                "sources":[["A","packets",10000,1507,1.2,true],["B","packets",7,7,0,false]]}"#,
        ));
        let sources = &picture.json("https://a")["runs"][0]["sources"];
        assert_eq!((&sources[0]["due"], &sources[1]["behind"]), (&json!(10000), &json!(false)));
        let mut shown = |picture: &Picture| {
            let overview = view.overview("u", picture, None, false);
            let state = (overview.runs[0].state.clone(), overview.runs[0].failed);
            (state, overview.foot)
        };
        let ((state, red), foot) = shown(&picture);
        assert_eq!((state.as_str(), red), ("behind", true));
        let text = "A is behind: sent 1,507 of 10,000 frames asked so far (15.1 %), 1.20 s late";
        assert_eq!(foot, [(Tone::Fault, text.to_owned())]);
        picture.put(run("r-1", RunState::Done));
        assert_eq!(shown(&picture), (("done".to_owned(), false), Vec::new()));
    }

    #[test]
    fn a_run_is_stopped_by_s_and_y_and_by_nothing_else() {
        let (mut view, picture) = (View::default(), picture());
        let mut press = |key| asked(&mut view, &picture, key);
        assert_eq!(press(Key::Char('y')), None);
        for no in [Key::Char('n'), Key::Escape, Key::Char('q'), Key::Up, Key::Char('s')] {
            assert_eq!((press(Key::Char('s')), press(no)), (None, None), "{no:?}");
        }
        assert_eq!(press(Key::Char('s')), None);
        assert_eq!(press(Key::Char('y')), Some(("r-1/stop".into(), json!({}))));
        assert_eq!(view.press(Key::Char('q'), &picture), Some(Act::Quit));
        assert_eq!(view.press(Key::Control('c'), &picture), Some(Act::Quit));
    }

    #[test]
    fn tab_shows_the_next_run_and_what_ends_gives_way() {
        let (mut view, mut picture) = (View::default(), picture());
        let shown = |view: &mut View, picture: &Picture| {
            let overview = view.overview("u", picture, None, true);
            overview.runs[overview.shown.unwrap()].id.clone()
        };
        assert_eq!(shown(&mut view, &picture), "r-1");
        view.press(Key::Char('x'), &picture);
        picture.put(run("r-2", RunState::Running));
        assert_eq!(shown(&mut view, &picture), "r-1", "what is shown stays");
        view.press(Key::Tab, &picture);
        assert_eq!(shown(&mut view, &picture), "r-2");
        view.press(Key::Tab, &picture);
        assert_eq!(shown(&mut view, &picture), "r-1");
        view.press(Key::BackTab, &picture);
        picture.put(run("r-2", RunState::Done));
        assert_eq!(shown(&mut view, &picture), "r-1");
        // A run of flows has no streams, so the key changes the whole run.
        picture.put(run("r-3", RunState::Paused));
        view.press(Key::Tab, &picture);
        assert_eq!(
            asked(&mut view, &picture, Key::Char('-')),
            Some(("r-3/rate".into(), json!({ "by": "0.9" })))
        );
        assert_eq!(asked(&mut view, &picture, Key::Char('p')).unwrap().0, "r-3/resume");
    }

    #[test]
    fn the_result_of_a_key_is_shown_until_the_next_key() {
        let (mut view, mut picture) = (View::default(), picture());
        let Some(Act::Ask(request)) = view.press(Key::Char('+'), &picture) else {
            panic!("it asks")
        };
        view.done(&mut picture, &request, Err("web: too fast\n  try less".into()));
        let foot =
            |view: &mut View, picture: &Picture| view.overview("u", picture, None, true).foot;
        assert_eq!(
            foot(&mut view, &picture)[..2],
            [(Tone::Fault, "web: too fast".into()), (Tone::Fault, "  try less".into())]
        );
        view.done(&mut picture, &request, Ok(json!(run("r-1", RunState::Paused))));
        assert_eq!(foot(&mut view, &picture)[0], (Tone::Plain, "web: 10 % more".into()));
        assert_eq!(view.overview("u", &picture, None, true).runs[0].state, "paused");
        view.press(Key::Char('?'), &picture);
        let overview = view.overview("u", &picture, Some("gone\nlong since"), true);
        assert_eq!((overview.instead.len(), overview.foot.len()), (HELP.len(), 2));
        assert_eq!(overview.foot[0], (Tone::Fault, "gone; reconnecting".into()));
    }
}
