package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/deskagent/deskagent/sandbox/proxy"
	"github.com/deskagent/deskagent/sandbox/selftest"
)

// outside are addresses of the internet at which something always answers, among them name servers that speak DNS over
// HTTPS and the address at which clouds tell machines their secrets. A question to them that gets out tells nothing.
var outside = []string{"1.1.1.1:443", "8.8.8.8:443", "9.9.9.9:53", "169.254.169.254:80", "[2606:4700:4700::1111]:443", "[fd00:ec2::254]:80"}

// resolvers are name servers outside, beside those that the guest is given.
var resolvers = []string{"1.1.1.1:53", "8.8.8.8:53"}

// hostNames are how some engines call the host in its guests.
var hostNames = []string{"host.docker.internal", "gateway.docker.internal", "host.containers.internal"}

// denied is what the proxy has to refuse, unless a rule names it.
var denied = []string{"127.0.0.1:22", "localhost:22", "[::1]:22", "169.254.169.254:80", "1.1.1.1:443", "dns.google:443",
	"cloudflare-dns.com:443", "host.docker.internal:22", "example.com:25"}

// plan makes the plan of a self-test from what there is around the guest just now.
func (e *Engine) plan(ctx context.Context, c container) (selftest.Plan, error) {
	plan := selftest.Plan{Outside: outside, Resolvers: resolvers, Names: hostNames, Question: "example.com"}
	networks, err := e.networks(ctx)
	if err != nil {
		return selftest.Plan{}, err
	}
	around, wayOut := neighbours(networks, c)
	plan.Neighbours = around
	if c.net.None() {
		return plan, nil
	}
	if !wayOut.IsValid() {
		return selftest.Plan{}, fmt.Errorf("the proxy has no address on network %s", networkName(c.name))
	}
	plan.Proxy = netip.AddrPortFrom(wayOut, proxy.Port).String()
	plan.Allowed = c.net.Allow[0].String()
	targets := slices.Clone(denied)
	for _, addr := range around {
		targets = append(targets, netip.AddrPortFrom(addr, 22).String())
	}
	for _, target := range targets {
		if rule, err := proxy.ParseRule(target); err != nil || !slices.Contains(c.net.Allow, rule) {
			plan.Denied = append(plan.Denied, target)
		}
	}
	return plan, nil
}

// network is what docker network inspect says of a network, as far as it matters here.
type network struct {
	Name string
	IPAM struct {
		Config []struct{ Subnet, Gateway string }
	}
	Containers map[string]struct{ Name, IPv4Address, IPv6Address string }
}

func (e *Engine) networks(ctx context.Context) ([]network, error) {
	// Networks come and go, and docker fails when one has gone between the two calls.
	for try := 1; ; try++ {
		ids, err := e.docker(ctx, "network", "ls", "--quiet", "--no-trunc")
		if err != nil {
			return nil, fmt.Errorf("listing networks: %w", err)
		}
		out, err := e.docker(ctx, append([]string{"network", "inspect"}, strings.Fields(string(ids))...)...)
		if missing(err) && try < 5 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at networks: %w", err)
		}
		var networks []network
		if err := json.Unmarshal(out, &networks); err != nil {
			return nil, fmt.Errorf("reading what docker says of networks: %w", err)
		}
		return networks, nil
	}
}

// neighbours are the addresses around a guest: of the gateways of all networks, of the containers on them, and of this
// machine, which may be the engine's. The guest's own and the proxy's on the common network are left out; the latter is
// returned apart.
func neighbours(networks []network, c container) (addrs []netip.Addr, proxy netip.Addr) {
	add := func(addr netip.Addr) {
		if addr.IsValid() && !addr.IsLoopback() && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	for _, n := range networks {
		for _, config := range n.IPAM.Config {
			if gateway, err := netip.ParseAddr(config.Gateway); err == nil {
				add(gateway)
			}
			if subnet, err := netip.ParsePrefix(config.Subnet); err == nil {
				add(subnet.Masked().Addr().Next()) // what becomes the gateway when none is named
			}
		}
		for _, peer := range n.Containers {
			for _, text := range []string{peer.IPv4Address, peer.IPv6Address} {
				prefix, err := netip.ParsePrefix(text)
				switch {
				case err != nil:
				case n.Name == networkName(c.name) && peer.Name == proxyName(c.name):
					proxy = prefix.Addr()
				case n.Name == networkName(c.name):
				default:
					add(prefix.Addr())
				}
			}
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return addrs, proxy
	}
	for _, addr := range own {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			add(prefix.Addr())
		}
	}
	return addrs, proxy
}
