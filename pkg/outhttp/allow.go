package outhttp

import (
	"fmt"
	"net/netip"
	"strings"
)

// allowList is what one use may reach although it is not public: ranges, and
// hosts by their name, whatever that resolves to.
type allowList struct {
	ranges []netip.Prefix
	hosts  map[string]bool
}

// parseAllow reads entries such as 10.1.0.0/16, fd00::/8, 10.1.2.3 and
// alerts.internal.
func parseAllow(entries []string) (allowList, error) {
	l := allowList{hosts: map[string]bool{}}
	for _, e := range entries {
		if p, err := netip.ParsePrefix(e); err == nil {
			if p.Addr().Is4In6() || p.Addr() != p.Masked().Addr() {
				return l, fmt.Errorf("allow %q: the range has bits behind its length; write %s", e, p.Masked())
			}
			l.ranges = append(l.ranges, p)
			continue
		}
		if a, err := netip.ParseAddr(e); err == nil && a.Zone() == "" {
			a = a.Unmap()
			l.ranges = append(l.ranges, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		if err := checkHost(strings.ToLower(e)); err != nil {
			return l, fmt.Errorf("allow %q: write a range (10.1.0.0/16), an address or a host name: %w", e, err)
		}
		l.hosts[strings.ToLower(e)] = true
	}
	return l, nil
}
