//! One run of a generator: start, measurement of a step, end.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use squall_port_linux::{child, interface_counters, set_gro};
use squall_units::Nanos;

use crate::{compared::Repeated, experiments::limits::Limits, process::Program, watch};

use super::{
    drone,
    model::GeneratorRound,
    tools::{Driven, Fill, Generator},
    wire::Frame,
};

/// The location of a run.
pub struct Place {
    pub interfaces: [String; 2],
    pub work: PathBuf,
    pub cpu: Option<u32>,
    pub step: Nanos,
    /// Limits of the tools' CPU time and memory.
    pub limits: Option<Limits>,
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
        let fill = Fill {
            interface: &self.interfaces[0],
            frame,
            pps,
            // Duration for tools that end by themselves, with some time for `after`.
            seconds: (time + WARM_UP).as_secs() + 6,
            report: &report,
            script: &script,
        };
        fs::write(&script, tool.script(&fill)).map_err(|e| format!("{}: {e}", script.display()))?;
        let before = self.arrived()?;
        let receiver = tool.receiver().transpose().map_err(|e| e.to_string())?;
        let receiver = receiver
            .map(|tool| start(tool.find(), &tool.arguments, None, self.work.join("peer")))
            .transpose()?;
        if receiver.is_some() {
            std::thread::sleep(WARM_UP);
        }
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
        self.wait_for_frames(&started, before, stop)?;
        let seconds = watch::seconds(started.pid(), &self.interfaces[1], time, stop)?;
        let mut round = GeneratorRound::of(seconds);
        let pids = child::tree(started.pid());
        round.peak_memory_octets = pids.into_iter().map(child::peak_memory).sum();
        after();
        let output = started.end(END);
        drop(receiver);
        std::thread::sleep(LOOK);
        round.arrived = self.arrived()? - before;
        round.claimed = tool.claim(&output, &report);
        round.judge();
        Ok(round)
    }

    /// The frame counter of the receiving interface.
    fn arrived(&self) -> Result<u64, String> {
        let of = &self.interfaces[1];
        interface_counters(of).map(|counters| counters.rx_packets).map_err(|e| format!("{of}: {e}"))
    }

    /// Waits for more frames than a control connection sends.
    fn wait_for_frames(
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
                return Err(format!("it sent no frames: {}", started.last_words()));
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
