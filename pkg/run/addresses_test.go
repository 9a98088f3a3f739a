package run_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/run"
)

func addresses(t *testing.T, list ...string) run.Addresses {
	t.Helper()
	a, err := run.ParseAddresses(list)
	require.NoError(t, err)
	return a
}

func TestAddresses(t *testing.T) {
	a := addresses(t, "203.0.113.0/24", "198.51.100.7", "2001:db8::/32", "10.1.2.3/8")
	for text, in := range map[string]bool{
		"203.0.113.9": true, "203.0.114.9": false, "198.51.100.7": true, "198.51.100.8": false,
		"2001:db8::1": true, "2001:db9::1": false, "10.200.0.1": true, "127.0.0.1": false,
	} {
		require.Equal(t, in, a.Has(netip.MustParseAddr(text)), text)
	}
	require.False(t, a.Has(netip.Addr{}))
	require.True(t, addresses(t).None())
	require.False(t, addresses(t).Has(netip.MustParseAddr("127.0.0.1")))
	every := addresses(t, "any")
	require.True(t, every.Any() && every.Has(netip.Addr{}) && !every.None())
	for _, bad := range []string{"10.0.0.0/33", "localhost", "", "10.0.0.1-10.0.0.9", "*", "::ffff:10.0.0.0/104", "0x7f.1"} {
		_, err := run.ParseAddresses([]string{bad})
		require.ErrorContains(t, err, "no address range", bad)
	}
	_, err := run.ParseAddresses([]string{"any", "10.0.0.0/8"})
	require.ErrorContains(t, err, "leave one of them out")
}

// The client is the right-most hop that is not one of ours, whatever it claims
// to have come through.
func TestClientOfARequest(t *testing.T) {
	ours := addresses(t, "10.0.0.0/8", "fd00::/8")
	for name, c := range map[string]struct {
		peer string
		hops []string
		want string
	}{
		"nobody between":        {"203.0.113.9:1", nil, "203.0.113.9"},
		"a stranger's word":     {"203.0.113.9:1", []string{"127.0.0.1"}, "203.0.113.9"},
		"through ours":          {"10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"through two of ours":   {"10.0.0.1:1", []string{"203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		"claims before ours":    {"10.0.0.1:1", []string{"127.0.0.1, 203.0.113.9"}, "203.0.113.9"},
		"claims to be ours":     {"10.0.0.1:1", []string{"10.0.0.9, 203.0.113.9"}, "203.0.113.9"},
		"several lines":         {"10.0.0.1:1", []string{"127.0.0.1", "203.0.113.9,\t10.0.0.3"}, "203.0.113.9"},
		"with a port":           {"10.0.0.1:1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		"IPv6 with a port":      {"[fd00::1]:1", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		"IPv4 as IPv6":          {"[::ffff:10.0.0.1]:1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		"from one of ours":      {"10.0.0.1:1", nil, "10.0.0.1"},
		"all are ours":          {"10.0.0.1:1", []string{"10.0.0.7, 10.0.0.2"}, "10.0.0.7"},
		"garbage":               {"10.0.0.1:1", []string{"203.0.113.9, garbage"}, ""},
		"an empty hop":          {"10.0.0.1:1", []string{"203.0.113.9,"}, ""},
		"a name":                {"10.0.0.1:1", []string{"localhost"}, ""},
		"an unreadable peer":    {"pipe", []string{"127.0.0.1"}, ""},
		"an unknown, as nginx":  {"10.0.0.1:1", []string{"unknown"}, ""},
		"garbage left of it":    {"10.0.0.1:1", []string{"'; drop, 203.0.113.9"}, "203.0.113.9"},
		"thousands to the left": {"10.0.0.1:1", []string{",,,,,,,,,,,,,,,,,,,,,,203.0.113.9"}, "203.0.113.9"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
			for _, h := range c.hops {
				r.Header.Add("X-Forwarded-For", h)
			}
			got := ours.ClientOf(r)
			want := netip.Addr{}
			if c.want != "" {
				want = netip.MustParseAddr(c.want)
			}
			require.Equal(t, want, got)
		})
	}
}
