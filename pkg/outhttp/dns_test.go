package outhttp_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// dns is a name server on loopback that answers A questions from a script:
// each question takes the next answer, the last one stays.
type dns struct {
	conn net.PacketConn
	mu   sync.Mutex
	plan map[string][][]netip.Addr
	asks map[string]int
}

func startDNS(t *testing.T, plan map[string][][]netip.Addr) *dns {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &dns{conn: conn, plan: plan, asks: map[string]int{}}
	done := make(chan struct{})
	go func() { defer close(done); d.serve() }()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return d
}

// resolver asks this server for everything.
func (d *dns) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", d.conn.LocalAddr().String())
	}}
}

// asked is how often addresses of a name were given out.
func (d *dns) asked(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asks[name]
}

func (d *dns) serve() {
	buf := make([]byte, 512)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := d.answer(buf[:n]); answer != nil {
			_, _ = d.conn.WriteTo(answer, from)
		}
	}
}

// answer copies the question and adds the addresses (RFC 1035, section 4.1).
func (d *dns) answer(q []byte) []byte {
	const header = 12
	if len(q) < header {
		return nil
	}
	name, at := questionName(q, header)
	if at+4 > len(q) {
		return nil
	}
	var found []netip.Addr
	if binary.BigEndian.Uint16(q[at:]) == 1 { // A
		found = d.next(name)
	}
	out := append([]byte{}, q[:at+4]...)
	out[2], out[3] = 0x84, 0 // an authoritative answer without error
	binary.BigEndian.PutUint16(out[6:], uint16(len(found)))
	copy(out[8:header], []byte{0, 0, 0, 0}) // no authorities, nothing additional
	for _, a := range found {
		ip := a.As4()
		out = append(out, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the name of the question, A, IN, no life, 4 bytes
		out = append(out, ip[:]...)
	}
	return out
}

func questionName(q []byte, at int) (string, int) {
	var labels []string
	for at < len(q) && q[at] != 0 && at+1+int(q[at]) <= len(q) {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	return strings.ToLower(strings.Join(labels, ".")), at + 1
}

func (d *dns) next(name string) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	plan := d.plan[name]
	if len(plan) == 0 {
		return nil
	}
	d.asks[name]++
	return plan[min(d.asks[name], len(plan))-1]
}
