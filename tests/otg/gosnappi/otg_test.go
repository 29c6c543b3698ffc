// Package otg_test drives the daemon with stock gosnappi, over HTTPS and gRPC: flows, LAGs, LLDP
// and routers. The tests run inside a lab (tests/otg/gosnappi/run makes it, with a daemon in it):
// veth-a is port p1, veth-b port p2.
//
// The statements are those of the public conformance suite of Open Traffic Generator.
package otg_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi"
)

// patience is how long a test waits for a state: far longer than a quiet machine needs.
const patience = 90 * time.Second

// overBoth runs a test with a client of each transport.
func overBoth(t *testing.T, test func(t *testing.T, otg *client)) {
	https, grpc := os.Getenv("OTG_HTTPS"), os.Getenv("OTG_GRPC")
	if https == "" || grpc == "" {
		t.Fatal("there is no daemon: use tests/otg/gosnappi/run")
	}
	for _, name := range []string{"https", "grpc"} {
		t.Run(name, func(t *testing.T) {
			api := gosnappi.NewApi()
			if name == "https" {
				api.NewHttpTransport().SetLocation(https).SetVerify(false)
			} else {
				api.NewGrpcTransport().SetLocation(grpc).SetRequestTimeout(patience)
			}
			api.SetVersionCompatibilityCheck(true)
			otg := &client{t, api}
			t.Cleanup(func() {
				otg.transmit("stop")
				otg.protocols("stop")
				// The ports are free for the next client.
				otg.set(gosnappi.NewConfig())
				if err := api.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, otg)
		})
	}
}

// client has the steps that tests share.
type client struct {
	t   *testing.T
	api gosnappi.Api
}

func (otg *client) set(config gosnappi.Config) {
	otg.t.Helper()
	if _, err := otg.api.SetConfig(config); err != nil {
		otg.t.Fatal(err)
	}
}

func (otg *client) control(state gosnappi.ControlState) {
	otg.t.Helper()
	if _, err := otg.api.SetControlState(state); err != nil {
		otg.t.Fatal(err)
	}
}

func (otg *client) protocols(state gosnappi.StateProtocolAllStateEnum) {
	otg.t.Helper()
	control := gosnappi.NewControlState()
	control.Protocol().All().SetState(state)
	otg.control(control)
}

func (otg *client) transmit(state gosnappi.StateTrafficFlowTransmitStateEnum) {
	otg.t.Helper()
	control := gosnappi.NewControlState()
	control.Traffic().FlowTransmit().SetState(state)
	otg.control(control)
}

// routes withdraws or advertises ranges by name.
func (otg *client) routes(state gosnappi.StateProtocolRouteStateEnum, names ...string) {
	otg.t.Helper()
	control := gosnappi.NewControlState()
	control.Protocol().Route().SetState(state).SetNames(names)
	otg.control(control)
}

func (otg *client) metrics(request gosnappi.MetricsRequest) gosnappi.MetricsResponse {
	otg.t.Helper()
	found, err := otg.api.GetMetrics(request)
	if err != nil {
		otg.t.Fatal(err)
	}
	return found
}

func (otg *client) states(request gosnappi.StatesRequest) gosnappi.StatesResponse {
	otg.t.Helper()
	found, err := otg.api.GetStates(request)
	if err != nil {
		otg.t.Fatal(err)
	}
	return found
}

func (otg *client) flows() []gosnappi.FlowMetric {
	otg.t.Helper()
	request := gosnappi.NewMetricsRequest()
	request.Flow().SetFlowNames([]string{})
	return otg.metrics(request).FlowMetrics().Items()
}

// until waits for a state. `seen` returns whether it is there, and what to print if it never is.
func (otg *client) until(what string, seen func() (bool, any)) {
	otg.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		good, found := seen()
		if good {
			return
		}
		if time.Now().After(deadline) {
			otg.t.Fatalf("waited %v until %s; found %v", patience, what, found)
		}
	}
}

// arrive sends all flows, and waits until each has stopped with `frames` sent and received.
func (otg *client) arrive(flows int, frames uint64) {
	otg.t.Helper()
	otg.transmit("start")
	otg.until("all frames have arrived", func() (bool, any) {
		found := otg.flows()
		missing := slices.ContainsFunc(found, func(of gosnappi.FlowMetric) bool {
			return of.Transmit() != "stopped" || of.FramesTx() != frames || of.FramesRx() != frames
		})
		return len(found) == flows && !missing, found
	})
}

// equal fails the test if a value is not the wanted one.
func equal[T comparable](t *testing.T, what string, found, wanted T) {
	t.Helper()
	if found != wanted {
		t.Errorf("%s: found %v, expected %v", what, found, wanted)
	}
}

// ports returns a configuration with two ports.
func ports() gosnappi.Config {
	config := gosnappi.NewConfig()
	config.Ports().Add().SetName("p1").SetLocation("veth-a")
	config.Ports().Add().SetName("p2").SetLocation("veth-b")
	return config
}

// flow adds a flow with metrics, whose ends are the caller's to set.
func flow(config gosnappi.Config, name string, frames uint32) gosnappi.Flow {
	flow := config.Flows().Add().SetName(name)
	flow.Size().SetFixed(128)
	flow.Rate().SetPps(1000)
	flow.Duration().FixedPackets().SetPackets(frames)
	flow.Metrics().SetEnable(true)
	return flow
}

func mac(number int) string {
	return fmt.Sprintf("02:00:00:00:00:%02x", number)
}

// named returns one of two names, such as "p1".
func named(kind string, number int) string {
	return fmt.Sprintf("%s%d", kind, number)
}

func TestFlowBetweenPortsArrivesAndIsCounted(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		made := flow(config, "f", 200)
		made.TxRx().Port().SetTxName("p1").SetRxNames([]string{"p2"})
		made.Metrics().SetLoss(true)
		made.Metrics().Latency().SetEnable(true).SetMode("cut_through")
		packet := made.Packet()
		packet.Add().Ethernet().Src().SetValue(mac(1))
		packet.Add().Ipv4().Dst().SetValue("10.1.0.2")
		packet.Add().Udp().DstPort().SetValues([]uint32{5000, 5001})
		config.Captures().Add().SetName("all").SetPortNames([]string{"p2"}).SetFormat("pcap")
		otg.set(config)

		// What the daemon has is what was set.
		kept, err := otg.api.GetConfig()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "flows", len(kept.Flows().Items()), 1)
		equal(t, "rate", kept.Flows().Items()[0].Rate().Pps(), 1000)

		control := gosnappi.NewControlState()
		control.Port().Capture().SetState("start").SetPortNames([]string{"p2"})
		otg.control(control)
		otg.arrive(1, 200)
		found := otg.flows()[0]
		equal(t, "loss", found.Loss(), 0)
		equal(t, "octets", found.BytesRx(), 200*128)
		if latency := found.Latency(); latency.MinimumNs() <= 0 ||
			latency.MinimumNs() > latency.AverageNs() || latency.AverageNs() > latency.MaximumNs() {
			t.Errorf("latency is not in order: %v", latency)
		}
		request := gosnappi.NewMetricsRequest()
		request.Port().SetPortNames([]string{})
		otg.until("ports have counted the frames", func() (bool, any) {
			ports := otg.metrics(request).PortMetrics().Items()
			return len(ports) == 2 && ports[0].FramesTx() == 200 && ports[1].FramesRx() >= 200, ports
		})

		control.Port().Capture().SetState("stop")
		otg.control(control)
		captured, err := otg.api.GetCapture(gosnappi.NewCaptureRequest().SetPortName("p2"))
		if err != nil {
			t.Fatal(err)
		}
		// A header of 24 octets, then each frame with its own of 16.
		if least := 24 + 200*(16+128); len(captured) < least {
			t.Errorf("the capture has %d octets, expected at least %d", len(captured), least)
		}
	})
}

func TestErrorsNameTheirPosition(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		made := flow(config, "f", 1)
		made.TxRx().Port().SetTxName("p9").SetRxNames([]string{"p2"})
		made.Packet().Add().Ethernet()
		_, err := otg.api.SetConfig(config)
		if err == nil {
			t.Fatal("a flow from an unknown port was accepted")
		}
		refused, good := gosnappi.FromError(err)
		if !good || len(refused.Errors()) != 1 {
			t.Fatalf("the client cannot read the error: %v", err)
		}
		// The codes are those of HTTP and of gRPC (INVALID_ARGUMENT).
		if code := refused.Code(); code != 400 && code != 3 {
			t.Errorf("found code %d, expected 400 or 3", code)
		}
		const wanted = "flows[0].tx_rx.port.tx_name"
		if text := refused.Errors()[0]; len(text) < len(wanted) || text[:len(wanted)] != wanted {
			t.Errorf("found %q, expected %q at the start", text, wanted)
		}
	})
}

func TestLldpInstancesAreNeighborsUntilProtocolsStop(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		for number := 1; number <= 2; number++ {
			instance := config.Lldp().Add().SetName(named("lldp", number))
			instance.SetHoldTime(120).SetAdvertisementInterval(5)
			instance.Connection().SetPortName(named("p", number))
			instance.ChassisId().MacAddressSubtype().SetValue(mac(number))
			instance.SystemName().SetValue(named("system ", number))
		}
		otg.set(config)
		neighbors := func() []gosnappi.LldpNeighborsState {
			request := gosnappi.NewStatesRequest()
			request.LldpNeighbors().SetLldpNames([]string{})
			return otg.states(request).LldpNeighbors().Items()
		}
		otg.protocols("start")
		otg.until("both have a neighbor", func() (bool, any) {
			found := neighbors()
			return len(found) == 2, found
		})
		for index, of := range neighbors() {
			other := 2 - index
			equal(t, "instance", of.LldpName(), named("lldp", index+1))
			equal(t, "kind of chassis", of.ChassisIdType(), "mac_address")
			equal(t, "chassis", of.ChassisId(), mac(other))
			equal(t, "kind of port", of.PortIdType(), "interface_name")
			equal(t, "port", of.PortId(), named("p", other))
			equal(t, "system", of.SystemName(), named("system ", other))
			equal(t, "time to live", of.Ttl(), 120)
		}
		request := gosnappi.NewMetricsRequest()
		request.Lldp().SetLldpNames([]string{"lldp1"})
		otg.until("frames are counted both ways", func() (bool, any) {
			found := otg.metrics(request).LldpMetrics().Items()
			return len(found) == 1 && min(found[0].FramesTx(), found[0].FramesRx()) >= 2 &&
				found[0].FramesErrorRx() == 0, found
		})
		otg.protocols("stop")
		equal(t, "neighbors after the stop", len(neighbors()), 0)
	})
}

func TestLagsComeUpCarryAFlowAndGoOutOfSync(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		for number := 1; number <= 2; number++ {
			lag := config.Lags().Add().SetName(named("lag", number)).SetMinLinks(1)
			lag.Protocol().Lacp().SetActorSystemId(fmt.Sprintf("0%d:01:01:01:01:01", number)).
				SetActorKey(uint32(number))
			member := lag.Ports().Add().SetPortName(named("p", number))
			member.Lacp().SetActorPortNumber(1)
			member.Ethernet().SetName(named("eth", number)).SetMac(mac(number))
		}
		made := flow(config, "f", 50)
		made.TxRx().Port().SetTxName("lag1").SetRxNames([]string{"lag2"})
		made.Packet().Add().Ethernet()
		otg.set(config)
		are := func(status gosnappi.LagMetricOperStatusEnum) func() (bool, any) {
			return func() (bool, any) {
				request := gosnappi.NewMetricsRequest()
				request.Lag().SetLagNames([]string{})
				found := otg.metrics(request).LagMetrics().Items()
				other := slices.ContainsFunc(found, func(of gosnappi.LagMetric) bool {
					return of.OperStatus() != status
				})
				return len(found) == 2 && !other, found
			}
		}
		if down, found := are("down")(); !down {
			t.Errorf("LAGs are up before protocols start: %v", found)
		}
		otg.protocols("start")
		otg.until("both LAGs are up", are("up"))
		request := gosnappi.NewMetricsRequest()
		request.Lacp().SetLagNames([]string{"lag1"})
		of := otg.metrics(request).LacpMetrics().Items()[0]
		equal(t, "member", of.LagMemberPortName(), "p1")
		equal(t, "system", of.SystemId(), "01:01:01:01:01:01")
		equal(t, "partner", of.PartnerId(), "02:01:01:01:01:01")
		equal(t, "key of the partner", of.PartnerKey(), 2)
		equal(t, "synchronization", of.Synchronization(), "in_sync")
		equal(t, "collecting and distributing", of.Collecting() && of.Distributing(), true)
		otg.arrive(1, 50)

		admin := func(state gosnappi.StateProtocolLacpAdminStateEnum) {
			control := gosnappi.NewControlState()
			control.Protocol().Lacp().Admin().SetState(state).SetLagMemberNames([]string{"p1"})
			otg.control(control)
		}
		admin("down")
		otg.until("both LAGs are out of sync", are("down"))
		admin("up")
		otg.until("both LAGs are in sync again", are("up"))
	})
}
