//! A substitute for `layer` in builds without TLS: without settings of TLS, no program has
//! connections.

use std::time::Instant;

use squall_tcp::{Event, FlowId, Piece};

use super::{Http3, Http3Counts, MigrateTo};
use crate::{Apps, FlowSocket, Observer, ProgramId, Role, Tls, message::Ready};

/// Bits that no piece has.
pub(crate) const DATAGRAMS: u32 = 3 << 30;

/// No datagram belongs to a connection.
pub(crate) fn home_of(_: &[u8]) -> Option<(u8, u32)> {
    None
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Layer;

impl Layer {
    pub fn add<'a>(
        &mut self,
        _: ProgramId,
        _: Role,
        _: &Http3,
        tls: &Tls,
        _: Instant,
        _: impl Iterator<Item = (u32, &'a Ready)>,
    ) {
        match *tls {}
    }

    pub fn has(&self, _: ProgramId) -> bool {
        false
    }

    pub fn open_lanes(&self) -> usize {
        0
    }

    pub fn streams(&self) -> u64 {
        0
    }

    pub fn lanes(&self, _: ProgramId) -> Option<u16> {
        None
    }

    pub fn counts(&self, _: ProgramId) -> Option<Http3Counts> {
        None
    }

    pub fn moved(&self, _: &[u8]) -> Option<FlowId> {
        None
    }

    pub fn set_worker(&mut self, _: u8) {}

    pub fn take_move(&mut self) -> Option<(FlowId, MigrateTo)> {
        None
    }

    pub fn has_moves(&self) -> bool {
        false
    }

    pub fn rebound<O: Observer>(&mut self, _: &mut Apps<O>, _: &mut impl FlowSocket, _: bool) {
        unreachable!("no program has connections");
    }

    pub fn memory(&self) -> usize {
        0
    }

    pub fn len(&self) -> usize {
        0
    }

    pub fn copy(&self, _: Piece, _: u32, _: &mut [u8]) {
        unreachable!("no program has connections");
    }

    pub fn event<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        event: Event<'_>,
    ) {
        apps.run_program(socket, event);
    }
}
