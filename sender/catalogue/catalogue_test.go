package catalogue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/sender/catalogue"
)

// wechat is WeChat's list, with faults on demand.
type wechat struct {
	mu    sync.Mutex
	list  []catalogue.Template
	err   error
	slow  time.Duration
	calls int
}

func (w *wechat) Templates(ctx context.Context, _ string) ([]catalogue.Template, error) {
	w.mu.Lock()
	w.calls++
	list, err, slow := w.list, w.err, w.slow
	w.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return list, err
}

func (w *wechat) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func bubble(t *testing.T, f func(t *testing.T, w *wechat, c *catalogue.Catalogue)) {
	synctest.Test(t, func(t *testing.T) {
		w := &wechat{list: []catalogue.Template{{ID: "A", Kind: catalogue.KindTemplate, Keys: []string{"thing1"}}}}
		c := catalogue.New(w, nil, zap.NewNop(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		f(t, w, c)
		cancel()
		require.NoError(t, <-done)
	})
}

func find(t *testing.T, c *catalogue.Catalogue, id string) catalogue.Finding {
	_, f := c.Find(t.Context(), "shop", catalogue.KindTemplate, id)
	return f
}

func TestTheListIsReadOnceAndAgainForWhatItLacks(t *testing.T) {
	bubble(t, func(t *testing.T, w *wechat, c *catalogue.Catalogue) {
		require.Equal(t, catalogue.Found, find(t, c, "A"), "the first push waits for the list")
		require.Equal(t, catalogue.Unknown, find(t, c, "B"))
		require.Equal(t, 1, w.calls, "the list was read a moment ago")
		w.set(func() { w.list = append(w.list, catalogue.Template{ID: "B", Kind: catalogue.KindTemplate}) })
		<-time.After(31 * time.Second) // of the bubble
		require.Equal(t, catalogue.Found, find(t, c, "B"), "it was added since")
		require.Equal(t, 2, w.calls)
		_, f := c.Find(t.Context(), "shop", catalogue.KindSubscription, "A")
		require.Equal(t, catalogue.Away, f, "nothing is known of a kind that the list has none of")
	})
}

// WeChat away: what is known stays in use for a day, and nobody is refused for what
// cannot be told.
func TestWeChatAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *wechat, c *catalogue.Catalogue) {
		w.set(func() { w.err = errors.New("away") })
		require.Equal(t, catalogue.Away, find(t, c, "A"))
		w.set(func() { w.err = nil })
		require.Equal(t, catalogue.Away, find(t, c, "A"), "WeChat is not asked again at once")
		require.Equal(t, 1, w.calls)
		<-time.After(31 * time.Second)
		require.Equal(t, catalogue.Found, find(t, c, "A"))
		w.set(func() { w.err = errors.New("away") })
		<-time.After(23 * time.Hour)
		require.Equal(t, catalogue.Found, find(t, c, "A"))
		require.Equal(t, catalogue.Away, find(t, c, "B"), "an old list cannot call an id unknown")
		<-time.After(2 * time.Hour)
		require.Equal(t, catalogue.Away, find(t, c, "A"))
		require.LessOrEqual(t, w.calls, 8)
	})
}

func TestAPushDoesNotWaitLongForASlowWeChat(t *testing.T) {
	bubble(t, func(t *testing.T, w *wechat, c *catalogue.Catalogue) {
		w.set(func() { w.slow = 3 * time.Second })
		begin := time.Now()
		require.Equal(t, catalogue.Away, find(t, c, "A"))
		require.Equal(t, time.Second, time.Since(begin))
		<-time.After(2 * time.Second)
		require.Equal(t, catalogue.Found, find(t, c, "A"))
		require.Equal(t, 1, w.calls)
	})
}

func TestValuesAgainstTheirTypes(t *testing.T) {
	han := func(n int) string { return strings.Repeat("字", n) }
	for key, v := range map[string]struct{ good, bad string }{
		"thing1": {han(20), han(21)}, "number2": {"12345.6", "twelve"}, "letter3": {"abc", "a1"}, "symbol4": {"!!!!!", "!!!!!!"},
		"character_string5": {"A-17/b", "合同17"}, "phone_number6": {"+86-0755-8888888", "call me"}, "car_number7": {"粤B12345", "粤B12345678"},
		"amount8": {"¥1234567.89", "12345678901元"}, "name9": {han(10), han(11)}, "phrase10": {han(5), han(6)}, "date11": {"2026年12月24日", "tomorrow"},
		"time12": {"18:00", "soon"}, "number13": {strings.Repeat("1", 32), strings.Repeat("1", 33)},
	} {
		require.Empty(t, catalogue.Misfit(key, v.good), key)
		require.NotEmpty(t, catalogue.Misfit(key, v.bad), key)
	}
	require.Empty(t, catalogue.Misfit("name9", "Bartholomew Smith"), "letters may be twenty")
	require.Empty(t, catalogue.Misfit("keyword1", han(200)), "keys of older templates have no type")
}

func TestKeysAgainstTheTemplate(t *testing.T) {
	tpl := catalogue.Template{Keys: catalogue.KeysOf("账单\n{{thing1.DATA}} {{ amount2.DATA }}元 {{thing1.DATA}}")}
	require.Equal(t, []string{"thing1", "amount2"}, tpl.Keys)
	require.Nil(t, tpl.Check(map[string]string{"thing1": "电费", "amount2": "12"}))
	for key, data := range map[string]map[string]string{
		"amount2": {"thing1": "电费"},
		"thing1":  {"thing1": " ", "amount2": "12"},
		"extra":   {"thing1": "电费", "amount2": "12", "extra": "x", "later": "y"},
	} {
		w := tpl.Check(data)
		require.NotNil(t, w)
		require.Equal(t, key, w.Key)
	}
	require.Equal(t, "amount2", tpl.Check(map[string]string{"thing1": "电费", "amount2": "much"}).Key)
}
