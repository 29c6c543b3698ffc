//! One run of a generator: start, measurement of a step, end.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use squall_port_linux::{child, interface_counters, set_gro};
use squall_units::{Cannot, Nanos};

use crate::{
    compared::Repeated, experiments::limits::Limits, process::Program, tools::Tool, watch,
};

use super::{
    drone, http,
    model::GeneratorRound,
    tools::{Driven, Fill, Generator, Receiver, body_octets},
    wire::{self, Frame},
};

/// The location of a run.
pub struct Place {
    pub interfaces: [String; 2],
    pub work: PathBuf,
    pub cpu: Option<u32>,
    pub step: Nanos,
    /// Limits of the tools' CPU time and memory.
    pub limits: Option<Limits>,
    /// A capture of attacks, or the reason why there is none.
    pub attacks: Result<PathBuf, String>,
}

/// The other end of a tool, kept until the tool has ended.
#[allow(dead_code, reason = "its end is its drop")]
enum Other {
    Program(Program),
    Server(http::Server),
}

/// The longest wait for the first frames.
const START: Duration = Duration::from_secs(15);
/// Excludes the time in which a tool fills caches and buffers and starts its clocks.
const WARM_UP: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(10);
/// Time from the first interrupt to the second, and from there to the kill.
const END: Duration = Duration::from_secs(8);

impl Place {
    /// Runs `tool` once, and calls `after` between the measurement and the tool's end.
    pub fn once(
        &self,
        tool: &Generator,
        frame: &Frame,
        pps: Option<f64>,
        stop: &dyn Fn() -> bool,
        after: &mut dyn FnMut(),
    ) -> GeneratorRound {
        self.attempt(tool, frame, pps, stop, after).unwrap_or_else(GeneratorRound::failure)
    }

    fn attempt(
        &self,
        tool: &Generator,
        frame: &Frame,
        pps: Option<f64>,
        stop: &dyn Fn() -> bool,
        after: &mut dyn FnMut(),
    ) -> Result<GeneratorRound, String> {
        tool.check(frame)?;
        let report = self.work.join("report.json");
        let _ = fs::remove_file(&report);
        // Only for frames from XDP, because it changes the cost of receiving. A driver without this
        // setting refuses those frames, and the tool then fails.
        let _ = set_gro(&self.interfaces[1], tool.polls());
        let time = Duration::from_nanos(self.step.0);
        let script = self.work.join("script");
        let body = self.work.join("body");
        let octets = vec![b'a'; body_octets(frame, pps)];
        fs::write(&body, octets).map_err(|e| Cannot::write(&body, &e).to_string())?;
        let attacks = match &self.attacks {
            Ok(capture) => capture.as_path(),
            Err(why) if tool.needs_attacks() => return Err(why.clone()),
            Err(_) => Path::new(""),
        };
        let fill = Fill {
            interface: &self.interfaces[0],
            frame,
            pps,
            // Duration for tools that end by themselves, with some time for `after`.
            seconds: (time + WARM_UP).as_secs() + 6,
            report: &report,
            attacks,
            body: &body,
            script: &script,
        };
        fs::write(&script, tool.script(&fill)).map_err(|e| format!("{}: {e}", script.display()))?;
        let before = self.arrived()?;
        let receiver = self.receiver(tool)?;
        let (program, arguments) = tool.command(&fill).map_err(|e| e.to_string())?;
        let log = self.work.join("log");
        let mut started = start(program.find(), &arguments, self.cpu, log)?;
        if let Some(limits) = &self.limits {
            limits.add(started.pid())?;
        }
        match tool.driven() {
            Driven::ByArguments => {}
            Driven::Drone => drone::transmit(&self.interfaces[0], frame, pps)?,
        }
        let (mut round, output) = self.watched(&mut started, before, stop, after)?;
        drop(receiver);
        std::thread::sleep(LOOK);
        round.arrived = self.arrived()? - before;
        round.claimed = tool.claim(&output, &report);
        round.judge();
        Ok(round)
    }

    /// Watches a program that was started when `before` frames had arrived, from its first frames
    /// on, and ends it. Returns its output, too.
    ///
    /// # Errors
    /// It sends nothing: the reason, as text.
    pub fn watched(
        &self,
        started: &mut Program,
        before: u64,
        stop: &dyn Fn() -> bool,
        after: &mut dyn FnMut(),
    ) -> Result<(GeneratorRound, String), String> {
        self.wait_for_frames(started, before, stop)?;
        let time = Duration::from_nanos(self.step.0);
        let seconds = watch::seconds(started.pid(), &self.interfaces[1], time, stop)?;
        let mut round = GeneratorRound::of(seconds);
        let pids = child::tree(started.pid());
        round.peak_memory_octets = pids.into_iter().map(child::peak_memory).sum();
        after();
        Ok((round, started.end(END)))
    }

    /// Starts the other end that the tool needs, which ends when dropped.
    fn receiver(&self, tool: &Generator) -> Result<Option<Other>, String> {
        let other = match tool.receiver() {
            Receiver::None => return Ok(None),
            Receiver::Http => {
                let server = http::Server::start(wire::ADDRESSES[1], http::PORT);
                Other::Server(server.map_err(|e| format!("cannot start its server: {e}"))?)
            }
            Receiver::Command(command) => {
                let tool = Tool::of_command(&tool.name, command).map_err(|e| e.to_string())?;
                let log = self.work.join("peer");
                Other::Program(start(tool.find(), &tool.arguments, None, log)?)
            }
        };
        std::thread::sleep(WARM_UP);
        Ok(Some(other))
    }

    /// The frame counter of the receiving interface.
    pub fn arrived(&self) -> Result<u64, String> {
        let of = &self.interfaces[1];
        interface_counters(of).map(|counters| counters.rx_packets).map_err(|e| format!("{of}: {e}"))
    }

    /// Waits for more frames than a control connection sends.
    ///
    /// # Errors
    /// The program ends, or sends nothing: the reason, as text.
    pub fn wait_for_frames(
        &self,
        started: &Program,
        before: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let since = Instant::now();
        while self.arrived()? < before + 20 {
            if stop() {
                return Err("interrupted".into());
            }
            if child::has_ended(started.pid()) || since.elapsed() > START {
                return Err(format!("it sent no frames: {}", started.last_lines()));
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(WARM_UP);
        Ok(())
    }
}

fn start(
    program: Option<PathBuf>,
    arguments: &[String],
    cpu: Option<u32>,
    log: PathBuf,
) -> Result<Program, String> {
    Program::start(&program.ok_or("it is not installed")?, arguments, cpu, log)
}
