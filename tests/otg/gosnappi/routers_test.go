package otg_test

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
)

// device adds a device with an interface of both IP versions, whose gateway is the other device.
func device(config gosnappi.Config, number int) gosnappi.Device {
	made := config.Devices().Add().SetName(named("d", number))
	ethernet := made.Ethernets().Add().SetName(named("eth", number)).SetMac(mac(number))
	ethernet.Connection().SetPortName(named("p", number))
	ethernet.Ipv4Addresses().Add().SetName(named("ip4-", number)).SetPrefix(24).
		SetAddress(named("10.2.0.", number)).SetGateway(named("10.2.0.", 3-number))
	ethernet.Ipv6Addresses().Add().SetName(named("ip6-", number)).SetPrefix(64).
		SetAddress(named("2001:db8:2::", number)).SetGateway(named("2001:db8:2::", 3-number))
	return made
}

// between adds a flow from a range of one device to that of the other.
func between(config gosnappi.Config, name string, from, to string) gosnappi.Flow {
	made := flow(config, name, 50)
	made.TxRx().Device().SetTxNames([]string{from}).SetRxNames([]string{to})
	made.Packet().Add().Ethernet()
	made.Packet().Add().Ipv4()
	made.Packet().Add().Udp()
	return made
}

func TestBgpPrefixesAreInstalledWithdrawnAndReached(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		for number := 1; number <= 2; number++ {
			router := device(config, number).Bgp().SetRouterId(named("192.0.2.", number))
			peer := router.Ipv4Interfaces().Add().SetIpv4Name(named("ip4-", number)).Peers().Add()
			peer.SetName(named("bgp", number)).SetPeerAddress(named("10.2.0.", 3-number))
			peer.SetAsType("ebgp").SetAsNumber(uint32(65000 + number))
			peer.LearnedInformationFilter().SetUnicastIpv4Prefix(true).SetUnicastIpv6Prefix(true)
			ipv4 := peer.V4Routes().Add().SetName(named("r4-", number))
			ipv4.Addresses().Add().SetAddress(fmt.Sprintf("10%d.1.0.0", number)).SetPrefix(24).
				SetCount(3).SetStep(2)
			ipv4.Advanced().SetMultiExitDiscriminator(50).SetOrigin("egp")
			ipv4.Communities().Add().SetType("manual_as_number").SetAsNumber(1).SetAsCustom(2)
			segment := ipv4.AsPath().SetAsSetMode("do_not_include_local_as").Segments().Add()
			segment.SetType("as_seq").SetAsNumbers([]uint32{1112, 1113})
			ipv6 := peer.V6Routes().Add().SetName(named("r6-", number))
			ipv6.Addresses().Add().SetAddress(fmt.Sprintf("2001:db8:10%d::", number)).
				SetPrefix(48).SetCount(2)
		}
		between(config, "f", "r4-1", "r4-2")
		otg.set(config)

		sessions := func() map[string]gosnappi.Bgpv4Metric {
			request := gosnappi.NewMetricsRequest()
			request.Bgpv4().SetPeerNames([]string{})
			found := map[string]gosnappi.Bgpv4Metric{}
			for _, of := range otg.metrics(request).Bgpv4Metrics().Items() {
				found[of.Name()] = of
			}
			return found
		}
		are := func(state gosnappi.Bgpv4MetricSessionStateEnum) func() (bool, any) {
			return func() (bool, any) {
				found := sessions()
				return len(found) == 2 && found["bgp1"].SessionState() == state &&
					found["bgp2"].SessionState() == state, found
			}
		}
		prefixes := func(name string) gosnappi.BgpPrefixesState {
			request := gosnappi.NewStatesRequest()
			request.BgpPrefixes().SetBgpPeerNames([]string{name})
			found := otg.states(request).BgpPrefixes().Items()
			if len(found) != 1 || found[0].BgpPeerName() != name {
				t.Fatalf("prefixes of %s: found %v", name, found)
			}
			return found[0]
		}
		learnt := func(name string, networks ...string) func() (bool, any) {
			return func() (bool, any) {
				state, found := prefixes(name), []string{}
				for _, of := range state.Ipv4UnicastPrefixes().Items() {
					found = append(found, fmt.Sprintf("%s/%d", of.Ipv4Address(), of.PrefixLength()))
				}
				for _, of := range state.Ipv6UnicastPrefixes().Items() {
					found = append(found, fmt.Sprintf("%s/%d", of.Ipv6Address(), of.PrefixLength()))
				}
				slices.Sort(found)
				return slices.Equal(found, networks), found
			}
		}
		networks := func(number int) []string {
			return []string{
				fmt.Sprintf("10%d.1.0.0/24", number),
				fmt.Sprintf("10%d.1.2.0/24", number),
				fmt.Sprintf("10%d.1.4.0/24", number),
				fmt.Sprintf("2001:db8:10%d::/48", number),
				fmt.Sprintf("2001:db8:10%d::/48", number+1),
			}
		}
		// The second network of IPv6 of the first device is 2001:db8:102::/48.
		all := map[int][]string{1: networks(1), 2: networks(2)}

		otg.protocols("start")
		otg.until("sessions are up", are("up"))
		for number := 1; number <= 2; number++ {
			otg.until("prefixes are installed", learnt(named("bgp", number), all[3-number]...))
		}
		for _, of := range prefixes("bgp2").Ipv4UnicastPrefixes().Items() {
			equal(t, "origin", of.Origin(), "egp")
			equal(t, "metric", of.MultiExitDiscriminator(), 50)
			equal(t, "next hop", of.Ipv4NextHop(), "10.2.0.1")
			communities, segments := of.Communities().Items(), of.AsPath().Segments().Items()
			if len(communities) != 1 || communities[0].AsNumber() != 1 ||
				communities[0].AsCustom() != 2 {
				t.Errorf("communities: found %v", communities)
			}
			if len(segments) != 1 || !slices.Equal(segments[0].AsNumbers(), []uint32{1112, 1113}) {
				t.Errorf("AS path: found %v", segments)
			}
		}
		for name, of := range sessions() {
			equal(t, name+": routes sent", of.RoutesAdvertised(), 5)
			equal(t, name+": routes received", of.RoutesReceived(), 5)
			equal(t, name+": flaps", of.SessionFlapCount(), 0)
			equal(t, name+": state machine", of.FsmState(), "established")
		}
		otg.arrive(1, 50)

		otg.routes("withdraw", "r4-1")
		otg.until("a range is withdrawn", learnt("bgp2", all[1][3:]...))
		equal(t, "withdrawn routes", sessions()["bgp2"].RouteWithdrawsReceived(), 3)
		otg.routes("advertise", "r4-1")
		otg.until("it is announced again", learnt("bgp2", all[1]...))

		peers := func(state gosnappi.StateProtocolBgpPeersStateEnum) {
			control := gosnappi.NewControlState()
			control.Protocol().Bgp().Peers().SetState(state).SetPeerNames([]string{"bgp1"})
			otg.control(control)
		}
		peers("down")
		otg.until("sessions are down", are("down"))
		otg.until("routes end with their session", learnt("bgp2"))
		peers("up")
		otg.until("sessions are up again", are("up"))
		otg.until("prefixes are installed again", learnt("bgp2", all[1]...))
	})
}

func TestOspfv2RoutersHaveTheLsasOfEachOther(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		for number := 1; number <= 2; number++ {
			router := device(config, number).Ospfv2().SetName(named("ospf", number))
			router.SetStoreLsa(true).SetLsaRetransmitTime(2)
			router.RouterId().SetCustom(named("192.0.2.", number))
			wire := router.Interfaces().Add().SetName(named("x", number))
			wire.SetIpv4Name(named("ip4-", number)).NetworkType().PointToPoint()
			wire.Advanced().SetHelloInterval(1).SetDeadInterval(4).SetRoutingMetric(2)
			wire.Authentication().Md5S().Add().SetKeyId(1).SetKey("secret")
			inter := router.V4Routes().Add().SetName(named("r4-", number)).SetMetric(10)
			inter.Addresses().Add().SetAddress(fmt.Sprintf("%d0.10.10.1", number)).SetPrefix(32)
			external := router.V4Routes().Add().SetName(named("e4-", number)).SetMetric(7)
			external.Addresses().Add().SetAddress(fmt.Sprintf("10%d.1.0.0", number)).SetPrefix(24).
				SetCount(2).SetStep(2)
			external.RouteOrigin().ExternalType1()
		}
		between(config, "f", "r4-1", "r4-2")
		otg.set(config)

		// neighbors waits until each router has this number of full neighbors.
		neighbors := func(what string, wanted uint64) {
			t.Helper()
			request := gosnappi.NewMetricsRequest()
			request.Ospfv2().SetRouterNames([]string{})
			otg.until(what, func() (bool, any) {
				found := otg.metrics(request).Ospfv2Metrics().Items()
				other := slices.ContainsFunc(found, func(of gosnappi.Ospfv2Metric) bool {
					return of.FullStateCount() != wanted
				})
				return len(found) == 2 && !other, found
			})
		}
		// lsas waits until each router has the LSAs of the other. The second one has this number of
		// external ones.
		lsas := func(what string, external int) {
			t.Helper()
			request := gosnappi.NewStatesRequest()
			request.Ospfv2Lsas().SetRouterNames([]string{})
			wanted := map[string][]string{}
			for number := 1; number <= 2; number++ {
				other, count := 3-number, 2
				if other == 2 {
					count = external
				}
				from := named("192.0.2.", other)
				routes := []string{fmt.Sprintf("%d0.10.10.1/255.255.255.255 10 from %s", other, from)}
				for third := 0; third < 2*count; third += 2 {
					routes = append(routes, fmt.Sprintf("10%d.1.%d.0/255.255.255.0 7 from %s", other, third, from))
				}
				slices.Sort(routes)
				wanted[named("ospf", number)] = routes
			}
			otg.until(what, func() (bool, any) {
				found := map[string][]string{}
				for _, of := range otg.states(request).Ospfv2Lsas().Items() {
					routes := []string{}
					for _, lsa := range of.NetworkSummaryLsas().Items() {
						routes = append(routes, route(lsa.Header(), lsa.NetworkMask(), lsa.Metric()))
					}
					for _, lsa := range of.ExternalAsLsas().Items() {
						routes = append(routes, route(lsa.Header(), lsa.NetworkMask(), lsa.Metric()))
					}
					slices.Sort(routes)
					found[of.RouterName()] = routes
				}
				return maps.EqualFunc(found, wanted, slices.Equal), found
			})
		}

		otg.protocols("start")
		neighbors("each router has a full neighbor", 1)
		lsas("each router has the LSAs of the other", 2)
		otg.arrive(1, 50)
		otg.routes("withdraw", "e4-2")
		lsas("a range is withdrawn", 0)
		otg.routes("advertise", "e4-2")
		lsas("it is announced again", 2)

		routers := func(state gosnappi.StateProtocolOspfv2RoutersStateEnum) {
			control := gosnappi.NewControlState()
			control.Protocol().Ospfv2().Routers().SetState(state).SetRouterNames([]string{"ospf1"})
			otg.control(control)
		}
		routers("down")
		neighbors("no router has a neighbor", 0)
		routers("up")
		neighbors("each router has its neighbor again", 1)
	})
}

// route returns the network, the metric and the originator of an LSA. The identifier may have bits
// of the host, too (RFC 2328 appendix E).
func route(header gosnappi.Ospfv2LsaHeader, mask string, metric uint32) string {
	network := net.ParseIP(header.LsaId()).Mask(net.IPMask(net.ParseIP(mask).To4()))
	return fmt.Sprintf("%s/%s %d from %s", network, mask, metric, header.AdvertisingRouterId())
}

func TestIsisRoutersHaveTheLspsOfEachOther(t *testing.T) {
	overBoth(t, func(t *testing.T, otg *client) {
		config := ports()
		for number := 1; number <= 2; number++ {
			router := device(config, number).Isis().SetName(named("isis", number))
			router.SetSystemId(fmt.Sprintf("6%d0000000001", number))
			router.Basic().SetHostname(router.Name()).SetLearnedLspFilter(true).
				SetIpv4TeRouterId(named("10.2.0.", number))
			router.Advanced().SetAreaAddresses([]string{"490001"}).SetLspRefreshRate(900).
				SetEnableAttachedBit(false)
			wire := router.Interfaces().Add().SetName(named("z", number))
			wire.SetEthName(named("eth", number))
			wire.SetNetworkType("point_to_point").SetLevelType("level_1_2")
			wire.L1Settings().SetHelloInterval(1).SetDeadInterval(4).SetPriority(0)
			wire.L2Settings().SetHelloInterval(1).SetDeadInterval(4).SetPriority(0)
			ipv4 := router.V4Routes().Add().SetName(named("s4-", number)).SetLinkMetric(10)
			ipv4.Addresses().Add().SetAddress(fmt.Sprintf("%d0.20.20.1", number)).SetPrefix(32)
			ipv6 := router.V6Routes().Add().SetName(named("s6-", number)).SetLinkMetric(11)
			ipv6.Addresses().Add().SetAddress(fmt.Sprintf("2001:db8:10%d::", number)).SetPrefix(48)
		}
		between(config, "f", "s4-1", "s4-2")
		otg.set(config)

		control := gosnappi.NewControlState()
		control.Protocol().All().SetState("start")
		if _, err := otg.api.SetControlState(control); err != nil {
			if strings.Contains(err.Error(), "FRR is not installed") ||
				strings.Contains(err.Error(), "FRR's user is not there") {
				t.Skipf("SKIPPED: %v", err)
			}
			t.Fatal(err)
		}
		request := gosnappi.NewMetricsRequest()
		request.Isis().SetRouterNames([]string{})
		otg.until("sessions are up at both levels", func() (bool, any) {
			found := otg.metrics(request).IsisMetrics().Items()
			other := slices.ContainsFunc(found, func(of gosnappi.IsisMetric) bool {
				return min(of.L1SessionsUp(), of.L2SessionsUp()) != 1 ||
					min(of.L1DatabaseSize(), of.L2DatabaseSize()) < 2
			})
			return len(found) == 2 && !other, found
		})
		// lsps waits until each router has the LSPs of the other at both levels. The second one has
		// this number of ranges.
		lsps := func(what string, ranges int) {
			t.Helper()
			request := gosnappi.NewStatesRequest()
			request.IsisLsps().SetIsisRouterNames([]string{})
			wanted := map[string][]string{}
			for number := 1; number <= 2; number++ {
				other := 3 - number
				routes := []string{
					fmt.Sprintf("%d0.20.20.1/32 10", other),
					fmt.Sprintf("2001:db8:10%d::/48 11", other),
				}
				if other == 2 {
					routes = routes[:ranges]
				}
				for _, level := range []string{"level_1", "level_2"} {
					lsp := fmt.Sprintf("isis%d: 6%d0000000001-00-00 %s", number, other, level)
					wanted[lsp] = routes
				}
			}
			otg.until(what, func() (bool, any) {
				found := map[string][]string{}
				for _, of := range otg.states(request).IsisLsps().Items() {
					for _, lsp := range of.Lsps().Items() {
						name := fmt.Sprintf("%s: %s %s", of.IsisRouterName(), lsp.LspId(), lsp.PduType())
						found[name] = append(found[name], reachable(lsp.Tlvs())...)
					}
				}
				return maps.EqualFunc(found, wanted, slices.Equal), found
			})
		}
		lsps("each router has the LSPs of the other", 2)
		otg.arrive(1, 50)
		otg.routes("withdraw", "s6-2")
		lsps("a range is withdrawn", 1)
		otg.routes("advertise", "s6-2")
		lsps("it is announced again", 2)

		routers := gosnappi.NewControlState()
		routers.Protocol().Isis().Routers().SetState("down").SetRouterNames([]string{"isis1"})
		otg.control(routers)
		otg.until("no session is up", func() (bool, any) {
			found := otg.metrics(request).IsisMetrics().Items()
			other := slices.ContainsFunc(found, func(of gosnappi.IsisMetric) bool {
				return of.L1SessionsUp() != 0 || of.L2SessionsUp() != 0
			})
			return len(found) == 2 && !other, found
		})
	})
}

// reachable returns the ranges of an LSP with their metrics, without the networks of interfaces.
func reachable(tlvs gosnappi.IsisLspTlvs) []string {
	found := []string{}
	for _, tlv := range tlvs.ExtendedIpv4ReachabilityTlvs().Items() {
		for _, of := range tlv.Prefixes().Items() {
			found = append(found, fmt.Sprintf("%s/%d %d", of.Ipv4Address(), of.PrefixLength(), of.Metric()))
		}
	}
	for _, tlv := range tlvs.Ipv6ReachabilityTlvs().Items() {
		for _, of := range tlv.Prefixes().Items() {
			found = append(found, fmt.Sprintf("%s/%d %d", of.Ipv6Address(), of.PrefixLength(), of.Metric()))
		}
	}
	return slices.DeleteFunc(found, func(network string) bool {
		return strings.HasPrefix(network, "10.2.0.") || strings.HasPrefix(network, "2001:db8:2:")
	})
}
