package outhttp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ErrBlocked wraps every refusal of an address that is not public.
var ErrBlocked = errors.New("the address is not public; name it in the allow-list if it is meant")

// blocked4 are the IPv4 ranges that lead inside, nowhere, or to many. The
// standard library knows only some of them: for it CGNAT and the benchmark
// range are ordinary addresses (S42).
var blocked4 = prefixes(
	"0.0.0.0/8",        // this network: connects to the local host on Linux
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; also a cloud's metadata service
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // a cloud's platform service, on an otherwise public address
	"169.254.0.0/16",   // link local: metadata services
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; also a cloud's metadata service
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, and broadcast
)

// public6 is the only IPv6 range in which public addresses lie. Outside it are
// loopback, the unspecified address, IPv4 in its compatible, mapped and NAT64
// forms, local, site and link addresses and multicast.
var public6 = netip.MustParsePrefix("2000::/3")

// blocked6 are the ranges inside public6 that are not public hosts.
var blocked6 = prefixes(
	"2001::/23",     // protocol assignments: Teredo, benchmarks, ORCHID
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4: carries an IPv4 address of anybody's choice
	"3ffe::/16",     // returned, belongs to nobody
	"3fff::/20",     // documentation
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(list))
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// public tells whether an address is one of the open Internet.
func public(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch a = a.Unmap(); {
	case !a.IsValid() || a.Zone() != "":
		return false
	case a.Is4():
		return !slices.ContainsFunc(blocked4, in)
	}
	return public6.Contains(a) && !slices.ContainsFunc(blocked6, in)
}

// permit tells whether an address may be dialled for one of the uses that name
// the allowed ranges.
func permit(a netip.Addr, allowed []netip.Prefix) error {
	a = a.Unmap()
	if public(a) || slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	return fmt.Errorf("%s: %w", a, ErrBlocked)
}
