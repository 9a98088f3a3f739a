package run

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// AnyAddress is the word that lets every address in, where a list asks for it.
const AnyAddress = "any"

// Addresses is a set of network addresses. The zero value holds none.
type Addresses struct {
	any    bool
	ranges []netip.Prefix
}

// ParseAddresses reads ranges such as 203.0.113.0/24, single addresses, and the
// word AnyAddress, which must stand alone.
func ParseAddresses(list []string) (Addresses, error) {
	var a Addresses
	for _, text := range list {
		text = strings.TrimSpace(text)
		if text == AnyAddress {
			if len(list) > 1 {
				return Addresses{}, fmt.Errorf("%q beside other addresses: leave one of them out", AnyAddress)
			}
			return Addresses{any: true}, nil
		}
		p, err := parseRange(text)
		if err != nil {
			return Addresses{}, fmt.Errorf("%.60q is no address range: write 203.0.113.0/24, 2001:db8::/32 or a single address", text)
		}
		a.ranges = append(a.ranges, p)
	}
	return a, nil
}

func parseRange(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		err = errors.New("write it as an IPv4 range")
	}
	return p.Masked(), err
}

// None tells that no address is in the set.
func (a Addresses) None() bool { return !a.any && len(a.ranges) == 0 }

// Any tells that every address is in the set.
func (a Addresses) Any() bool { return a.any }

// everything gives the entry that holds every address of a family, as it is
// written, or nothing.
func (a Addresses) everything() string {
	if a.any {
		return AnyAddress
	}
	for _, p := range a.ranges {
		if p.Bits() == 0 {
			return p.String()
		}
	}
	return ""
}

// Has tells whether addr is in the set. An address that could not be read (the
// zero value) never is, unless all are.
func (a Addresses) Has(addr netip.Addr) bool {
	if a.any {
		return true
	}
	for _, p := range a.ranges {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// ClientOf is the address that a request comes from. X-Forwarded-For is whatever
// the client wrote with our own proxies' hops behind it, so it is read from the
// right, only as far as each hop is one of ours: the first that is not is the
// client (S35). A hop that is no address gives the zero value, which is in no
// list.
func (a Addresses) ClientOf(r *http.Request) netip.Addr {
	peer := peerOf(r)
	if len(a.ranges) == 0 || !a.Has(peer) {
		return peer
	}
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; {
			var hop string
			cut := strings.LastIndexByte(rest, ',')
			rest, hop = rest[:max(cut, 0)], rest[cut+1:]
			peer = parseHop(strings.Trim(hop, " \t"))
			if !a.Has(peer) {
				return peer
			}
		}
	}
	return peer
}

func peerOf(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// parseHop reads an address with or without a port.
func parseHop(text string) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().WithZone("")
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
