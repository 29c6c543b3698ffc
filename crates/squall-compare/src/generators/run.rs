//! One run of a generator: start, measurement of a step, stop.

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
    tools::{Driven, Fill, Generator, Receiver, body_octets, not_valid},
    wire::{self, Frame},
};

/// Environment of the runs.
pub struct Place {
    pub interfaces: [String; 2],
    pub work: PathBuf,
    pub cpu: Option<u32>,
    pub step: Nanos,
    /// Limits of the tools' CPU time and memory.
    pub limits: Option<Limits>,
    /// A capture of attacks, or why there is none.
    pub attacks: Result<PathBuf, String>,
}

/// The program at the receiving end, kept until the tool has ended.
#[allow(dead_code, reason = "its end is its drop")]
enum Other {
    Program(Program),
    Server(http::Server),
}

/// Maximum wait for the first frames.
const START: Duration = Duration::from_secs(15);
/// Time that is not measured, in which a tool fills caches and buffers and starts its timers.
const WARM_UP: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(10);
/// Time from the first interrupt to the second one, and from there to the kill.
const END: Duration = Duration::from_secs(8);

impl Place {
    /// Runs `tool` once. Calls `after` between the measurement and the end of the tool.
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
        // Only for frames from an XDP program, as polling changes the cost of receiving. A driver
        // without this setting rejects those frames, and the tool fails.
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
            // Duration for tools that end by themselves, including time for `after`.
            seconds: (time + WARM_UP).as_secs() + 6,
            report: &report,
            script: &script,
            attacks,
            body: &body,
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
        round.not_valid = not_valid(&report);
        round.judge();
        Ok(round)
    }

    /// Measures a program from its first frames on, and ends it. `before` is the counter of arrived
    /// frames at its start. Also returns its output.
    ///
    /// # Errors
    /// The program sends nothing; the error is the reason.
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

    /// Starts the program that the tool needs at the receiving end. It ends when dropped.
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

    /// Frame counter of the receiving interface.
    pub fn arrived(&self) -> Result<u64, String> {
        let of = &self.interfaces[1];
        interface_counters(of).map(|counters| counters.rx_packets).map_err(|e| format!("{of}: {e}"))
    }

    /// Waits until more frames have arrived than a control connection sends.
    ///
    /// # Errors
    /// The program ended, or sends nothing; the error is the reason.
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
