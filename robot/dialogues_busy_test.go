package robot_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/robot/backend"
)

// A back end that has no permit for the last answer of a dialogue does not eat it:
// the follower is told that it was too much, and gives the answer again.
func TestAnAnswerThatMeetsOverloadIsNotEaten(t *testing.T) {
	k := newTalking(t, true)
	k.use(strings.Replace(talkRules, "version: 1\n", "version: 1\nbusy: too many just now\n", 1))
	entered, free := make(chan struct{}, 10), make(chan struct{})
	k.backend(func(rw http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-free:
		case <-r.Context().Done():
		}
		_, _ = rw.Write([]byte(`{"text": "at last"}`))
	}, func(c *backend.Config) { c.Concurrency, c.Timeout = 1, 30*time.Second })
	for _, d := range []*time.Duration{&k.cfg.Overload.Query, &k.cfg.Overload.Event, &k.cfg.Overload.Marketing} {
		*d = 100 * time.Millisecond
	}
	k.run()
	for i, text := range []string{"balance", "9999", "y"} {
		k.send(callback("card", "oUser-2", i+1, text))
	}
	<-entered // the only permit is out
	sent := k.say("balance", "1234", "y")
	k.awaitReceipts(5)
	require.Equal(t, []string{"digits?", "sure?", "too many just now"}, k.texts("oUser-1"))
	require.Equal(t, wire.Rejected, k.receipt(sent[2].ID).State, "the fault happened")
	close(free)
	k.awaitReceipts(6)
	k.say("y", "hello")
	k.awaitReceipts(8)
	require.Equal(t, []string{"at last", "echo hello"}, k.texts("oUser-1")[3:], "the same answer does it, once")
	require.Len(t, entered, 1, "and what was refused had not reached the back end")
}
