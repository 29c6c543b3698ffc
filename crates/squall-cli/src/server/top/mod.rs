//! `squall top`: a live view of a daemon's runs, with keys to change them.

mod keys;
mod picture;
mod raw;
mod view;

use std::{
    io::{self, IsTerminal, Read},
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use serde_json::Value;
use squall::Error;
use squall_report::render::{LiveMode, Screen};
use squall_server::{Client, ClientEvent, WatchEvent};
use squall_units::Nanos;

use super::daemon::{Access, HERE};
use crate::drive::Signals;
use keys::Keys;
use picture::Picture;
use raw::Raw;
use view::{Act, Request, View};

/// Show the runs of a daemon live; change rates, pause and stop them by key
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall top                                     # the daemon of \
                        this machine
  squall top https://lab7.example:8443           # another, with its token: \
                        SQUALL_TOKEN=... or --token
  squall top lab7.example --verify lab7.pem             # with the certificate in this file, or \
                        sha256:FINGERPRINT
  squall top unix:/var/lib/squall/socket         # over its socket: no token for root and the user \
                        who started it
  squall top --json | jq '.runs[].streams[].lost'       # a line of JSON every half second, until \
                        Ctrl-C
  squall top --once                              # the current state only

Keys: arrows select a port or stream; + and - change the stream's rate by 10 %, > and < double and \
                        halve it; p pauses the run and resumes it; s, then y, stops it; tab shows \
                        the next run; ? shows help; q ends the view, but no run.
If the output is not a terminal, it prints JSON. Watching does not keep a lease.")]
pub struct Args {
    /// Watch the daemon at https://HOST[:PORT], at http://... (one that is --plain), or at
    /// unix:PATH on this machine
    #[arg(value_name = "URL", default_value = HERE)]
    url: String,
    #[command(flatten)]
    access: Access,
    /// Update at this interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_every)]
    every: Nanos,
    /// Print one line of JSON per update
    #[arg(long)]
    json: bool,
    /// Show the current state once, and exit
    #[arg(long)]
    once: bool,
}

fn parse_every(text: &str) -> Result<Nanos, String> {
    match crate::args::parse_time(text)? {
        time if (100_000_000..=60_000_000_000).contains(&time.0) => Ok(time),
        _ => Err("expected 100ms to 60s".into()),
    }
}

/// With `--once`, maximum time to wait for the first sample of new runs.
const FIRST_SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Input of the thread that decides and draws.
enum Event {
    Update(ClientEvent),
    Pressed(Vec<u8>),
    /// The terminal's input has ended or failed.
    Unplugged,
    Done(Request, Result<Value, String>),
    Ports(Value),
}

pub fn top(args: &Args) -> Result<ExitCode, Error> {
    let terminal = !args.json
        && io::stdout().is_terminal()
        && (args.once || io::stdin().is_terminal())
        && LiveMode::detect(false) == LiveMode::Terminal;
    let client = args.access.client(&args.url)?;
    let signals = Signals::catch()?;
    let mut picture = Picture::default();
    // Report an unreachable daemon or a wrong token before taking over the screen.
    picture.links(&client.get(PORTS)?);
    let (tell, events) = mpsc::channel();
    let sender = tell.clone();
    client.watch(Duration::from_nanos(args.every.0), move |update| {
        _ = sender.send(Event::Update(update))
    });
    let top = Top { client, picture, tell, lost: None, known: false };
    match (args.once, terminal) {
        (true, terminal) => top.once(&events, &signals, terminal),
        (false, false) => top.lines(&events, &signals, Duration::from_nanos(args.every.0)),
        (false, true) => top.screen(&events, &signals),
    }
}

const PORTS: &str = "/squall/v1/ports";

struct Top {
    client: Client,
    picture: Picture,
    tell: Sender<Event>,
    /// The reason why the connection was lost.
    lost: Option<String>,
    /// Whether the list of runs has arrived.
    known: bool,
}

impl Top {
    /// Applies an event of the daemon.
    ///
    /// # Errors
    /// If the daemon rejects the reconnection.
    fn apply(&mut self, update: ClientEvent) -> Result<(), Error> {
        match update {
            ClientEvent::Connected => self.lost = None,
            ClientEvent::Lost(why) => self.lost = Some(why),
            ClientEvent::Refused(why) => return Err(Error::Environment(why)),
            ClientEvent::WatchEvent(one) => {
                self.known |= matches!(one, WatchEvent::Hello { .. });
                if self.picture.apply(one) {
                    let tell = self.tell.clone();
                    // Link speeds are optional, so errors are ignored.
                    self.client.get_then(PORTS.into(), move |ports| {
                        if let Ok(ports) = ports {
                            _ = tell.send(Event::Ports(ports));
                        }
                    });
                }
            }
        }
        Ok(())
    }

    fn look(&self) -> String {
        self.picture.json(self.client.url()).to_string() + "\n"
    }

    fn once(
        mut self,
        events: &mpsc::Receiver<Event>,
        signals: &Signals,
        terminal: bool,
    ) -> Result<ExitCode, Error> {
        let until = Instant::now() + FIRST_SAMPLE_TIMEOUT;
        while !(self.known && self.picture.has_all()) && Instant::now() < until && !signals.came() {
            if let Ok(Event::Update(update)) = events.recv_timeout(POLL_INTERVAL) {
                self.apply(update)?;
            }
        }
        if let (false, Some(why)) = (self.known, self.lost.take()) {
            return Err(Error::Environment(why));
        }
        match terminal {
            false => crate::output::print(&self.look()),
            true => {
                let (width, color) = crate::output::look(false, crate::output::WIDTH);
                let mut view = View::default();
                let lines = view.overview(self.client.url(), &self.picture, None, false).lines(
                    width,
                    usize::MAX,
                    color,
                );
                crate::output::print(&(lines.join("\n") + "\n"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints one line per update.
    fn lines(
        mut self,
        events: &mpsc::Receiver<Event>,
        signals: &Signals,
        every: Duration,
    ) -> Result<ExitCode, Error> {
        let mut due = Instant::now();
        let mut reported = false;
        while !signals.came() {
            let wait = due.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
            match events.recv_timeout(wait) {
                Ok(Event::Update(update)) => self.apply(update)?,
                Ok(Event::Ports(ports)) => self.picture.links(&ports),
                _ => {}
            }
            if let Some(why) = self.lost.as_ref().filter(|_| !reported) {
                eprintln!("squall: {}\n  reconnecting", why.lines().next().unwrap_or_default());
            } else if reported && self.lost.is_none() {
                eprintln!("squall: {} is back", self.client.url());
            }
            reported = self.lost.is_some();
            if Instant::now() < due || !self.known {
                continue;
            }
            due = Instant::now() + every;
            if self.lost.is_none() && !crate::output::print_on(&self.look()) {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn screen(
        mut self,
        events: &mpsc::Receiver<Event>,
        signals: &Signals,
    ) -> Result<ExitCode, Error> {
        let raw = Raw::enter(io::stdin()).map_err(|error| {
            Error::Environment(format!("cannot read keys from the terminal: {error}"))
        })?;
        let mut screen = Screen::stderr();
        let tell = self.tell.clone();
        std::thread::spawn(move || read_keys(&tell));
        let (mut keys, mut view, mut size) = (Keys::default(), View::default(), (0, 0));
        let mut ended = Ok(ExitCode::SUCCESS);
        'watching: while !signals.came() {
            let event = events.recv_timeout(POLL_INTERVAL);
            // Skip the redraw if there was no event and the terminal has the same size.
            if matches!(event, Err(RecvTimeoutError::Timeout)) && size == screen.size() {
                continue;
            }
            for event in event.into_iter().chain(events.try_iter()) {
                match event {
                    Event::Update(update) => {
                        if let Err(error) = self.apply(update) {
                            ended = Err(error);
                            break 'watching;
                        }
                    }
                    Event::Ports(ports) => self.picture.links(&ports),
                    Event::Done(request, done) => view.done(&mut self.picture, &request, done),
                    Event::Unplugged => break 'watching,
                    Event::Pressed(octets) => {
                        for key in keys.read(&octets) {
                            match view.press(key, &self.picture) {
                                Some(Act::Quit) => break 'watching,
                                Some(Act::Ask(request)) => self.ask(request),
                                None => {}
                            }
                        }
                    }
                }
            }
            size = screen.size();
            let overview =
                view.overview(self.client.url(), &self.picture, self.lost.as_deref(), true);
            screen.draw(&overview.lines(size.0, size.1, screen.color()));
        }
        screen.erase();
        drop(raw);
        ended
    }

    fn ask(&self, request: Request) {
        let tell = self.tell.clone();
        self.client.post(request.path.clone(), request.body.clone(), move |done| {
            _ = tell.send(Event::Done(request, done));
        });
    }
}

fn read_keys(tell: &Sender<Event>) {
    let mut octets = [0; 256];
    loop {
        let event = match io::stdin().lock().read(&mut octets) {
            Ok(0) => Event::Unplugged,
            Ok(n) => Event::Pressed(octets[..n].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Event::Unplugged,
        };
        let last = matches!(event, Event::Unplugged);
        if tell.send(event).is_err() || last {
            return;
        }
    }
}
