package figures

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tidegate/app/figures/chart"
	"tidegate/pkg/api"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/run"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender"
)

// The scene of Figures 12 and 13 of paper 003: a business system sends a template
// message every 50 ms, and WeChat takes 10 s for each answer for a while. Without a
// gate the call to send is the call to WeChat; with it the message is in the queue
// when the call comes back.
const (
	slowApp    = "wx3a51c07be2d49f68"
	slowSecret = "6d0f3c1b9a8e4752d1c0b3a49586e7f2" //nolint:gosec // of the simulator
	slowName   = "bills"
	sendEvery  = 50 * time.Millisecond
	slowTmpl   = "Yw1mZc4bTn0sGf7uRkE5aJpQ2xHd9LvOiXq3Bt6N8rM"
)

// slowWeChat is the scene's WeChat and the two ways to it.
type slowWeChat struct {
	s         *stage
	delay     time.Duration
	phase     time.Duration
	sim       *wechatsim.Sim
	followers []string
	client    *wechat.Client
	token     string
	door      string
	key       string
	caller    *http.Client
	stack     run.Stack
}

// sendCall is one call of the business system: when it began, how long it took, and
// whether the message was taken.
type sendCall struct {
	at, took time.Duration
	ok       bool
}

func (s *stage) slowWeChat(ctx context.Context) (w *slowWeChat, err error) {
	w = &slowWeChat{caller: &http.Client{Timeout: time.Minute}, s: s, delay: 10 * time.Second, phase: s.span}
	if s.Short {
		w.delay, w.phase = time.Second, 600*time.Millisecond
	}
	cfg := wechatsim.DefaultConfig()
	cfg.Addr, cfg.Receipts.Off = "127.0.0.1:0", true
	cfg.Accounts = []wechatsim.Account{{AppID: slowApp, Secret: slowSecret, GhID: "gh_3a51c07be2d4", Token: "token", Mode: wechatsim.ModePlain, Followers: 50}}
	if w.sim, err = wechatsim.New(cfg, s.Log); err == nil {
		err = w.sim.Start()
	}
	if err != nil {
		return nil, err
	}
	w.stack.Push("simulator", func(context.Context) error { return w.sim.Close() })
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(err, w.stop(ctx))
	}
	return w, nil
}

func (w *slowWeChat) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return w.stack.Stop(ctx)
}

// open starts a sender between a queue and WeChat.
func (w *slowWeChat) open(ctx context.Context) (err error) {
	if w.followers, err = w.sim.Followers(slowApp, 0); err != nil {
		return err
	}
	if w.client, err = wechat.NewClient(nil, wechat.Options{BaseURLs: []string{w.sim.URL()}, Timeout: w.delay + 10*time.Second}); err != nil {
		return err
	}
	w.stack.Push("client", func(context.Context) error { w.client.CloseIdle(); return nil })
	tok, err := w.client.StableToken(ctx, slowApp, slowSecret, false)
	if err != nil {
		return err
	}
	w.token = tok.Token
	where, err := w.s.kafka()
	if err != nil {
		return err
	}
	topics := wire.Topics{Prefix: w.s.topicPrefix()}
	if err := ensure(ctx, where, append(topics.Shared(), topics.OfAccount(slowName)...)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tidegate-figures-")
	if err != nil {
		return err
	}
	w.stack.Push("directory", func(context.Context) error { return os.RemoveAll(dir) })
	db, err := sqldb.Open(ctx, sqldb.Config{Driver: sqldb.SQLite, DSN: filepath.Join(dir, "sender.db"), Synchronous: "normal"})
	if err != nil {
		return err
	}
	w.stack.Push("database", func(context.Context) error { return db.Close() })
	producer, err := kafka.NewProducer(where, kafka.ProducerOptions{}, w.s.Log, nil)
	if err != nil {
		return err
	}
	w.stack.Push("producer", producer.Close)
	return w.gate(ctx, where, topics, db, producer)
}

func ensure(ctx context.Context, where kafka.Config, names []string) error {
	a, err := kafka.NewAdmin(where)
	if err != nil {
		return err
	}
	defer a.Close()
	var specs []kafka.TopicSpec
	for _, name := range names {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 4, Replication: 1, Retention: time.Hour})
	}
	_, err = a.EnsureTopics(ctx, specs)
	return err
}

// gate runs the sender and its push API.
func (w *slowWeChat) gate(ctx context.Context, where kafka.Config, topics wire.Topics, db *sqldb.DB, producer *kafka.Producer) error {
	if err := api.Migrate(ctx, db); err != nil {
		return err
	}
	book := api.NewBook(db, nil)
	_, key, err := book.Add(ctx, "billing", []string{api.PushesWrite}, []string{api.AllAccounts})
	if err != nil {
		return err
	}
	cfg := sender.DefaultConfig()
	cfg.Intake.Templates = "off" // the scene has none at WeChat
	room, err := sender.New(ctx, cfg, sender.Deps{
		Kafka: where, Publisher: producer, DB: db, WeChat: w.client, Keys: api.NewKeys(book),
		IDs: idgen.NewGenerator(idgen.Fixed(1), nil), Topics: topics, Log: w.s.Log,
	})
	if err != nil {
		return err
	}
	limits := sender.DefaultLimits()
	if err := room.SetAccounts([]sender.Account{{Name: slowName, AppID: slowApp, Secret: slowSecret, Limits: limits}}); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- room.Run(life) }()
	w.stack.Push("sender", func(context.Context) error { end(); return <-done })
	door := httptest.NewServer(room.Handler())
	w.stack.Push("door", func(context.Context) error { door.Close(); w.caller.CloseIdleConnections(); return nil })
	w.door, w.key = door.URL, key
	return nil
}

// direct is the call without a gate.
func (w *slowWeChat) direct(ctx context.Context, n int) error {
	_, err := w.client.TemplateSend(ctx, w.token, wechat.TemplateMessage{
		ToUser: w.followers[n%len(w.followers)], TemplateID: slowTmpl, ClientMsgID: fmt.Sprint("direct-", n), Data: wechat.Values(map[string]string{"thing1": "bill"})})
	return err
}

// queued is the call with one.
func (w *slowWeChat) queued(ctx context.Context, n int) error {
	body, err := json.Marshal(map[string]any{"account": slowName, "openid": w.followers[n%len(w.followers)], "template_id": slowTmpl, "data": map[string]string{"thing1": "bill"}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.door+"/v1/pushes", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.caller.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("send through the gate: status %d", res.StatusCode)
	}
	return err
}

// play sends every 50 ms for three phases; in the middle one WeChat is slow.
func (w *slowWeChat) play(ctx context.Context, send func(ctx context.Context, n int) error) ([]sendCall, error) {
	for n := range 3 { // connections, tokens and the group are there
		if err := send(ctx, n); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var calls []sendCall
	begin := time.Now()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	slow, slowed := wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: int(w.delay.Milliseconds()), API: wechatsim.PathTemplateSend}, 0
	for n := 3; time.Since(begin) < 3*w.phase; n++ {
		if phase := int(time.Since(begin) / w.phase); phase != slowed && phase < 3 {
			slowed = phase
			var faults []wechatsim.Fault
			if phase == 1 {
				faults = append(faults, slow)
			}
			if err := w.sim.SetFaults(faults...); err != nil {
				return nil, err
			}
		}
		wg.Go(func() {
			at := time.Since(begin)
			err := send(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, sendCall{at: at, took: time.Since(begin) - at, ok: err == nil})
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	wg.Wait()
	slices.SortFunc(calls, func(a, b sendCall) int { return int(a.at - b.at) })
	return calls, errors.Join(ctx.Err(), w.sim.SetFaults())
}

// reached counts the messages that WeChat took, each once.
func (w *slowWeChat) reached() int {
	got, _ := w.sim.Journal().Read(0, 1<<20, func(e *wechatsim.Entry) bool {
		return e.Kind == wechatsim.KindArrival && e.What == wechatsim.PathTemplateSend && e.Errcode == 0
	})
	seen := map[string]bool{}
	for _, e := range got {
		seen[e.ClientMsgID] = true
	}
	return len(seen)
}

// directFigure shows the call of a business system that calls WeChat itself.
func directFigure(ctx context.Context, s *stage) (drawing, error) {
	return s.slowFigure(ctx, func(w *slowWeChat) func(context.Context, int) error { return w.direct }, func(d *drawing, w *slowWeChat, usual, slow time.Duration) {
		d.claim(slow >= w.delay, "without a gate the call takes as long as WeChat", "the slowest %v", slow.Round(time.Millisecond))
	})
}

// gateFigure shows the same with the queue between them.
func gateFigure(ctx context.Context, s *stage) (drawing, error) {
	return s.slowFigure(ctx, func(w *slowWeChat) func(context.Context, int) error { return w.queued }, func(d *drawing, w *slowWeChat, usual, slow time.Duration) {
		d.claim(slow < w.delay, "with the gate no call waits for WeChat", "the slowest %v, WeChat %v", slow.Round(time.Millisecond), w.delay)
		d.timed(slow < w.delay/10, "the call stays flat while WeChat is slow", "the slowest %v, else %v", slow.Round(time.Millisecond), usual.Round(time.Millisecond))
	})
}

// slowFigure plays one way and draws how long each call took.
func (s *stage) slowFigure(ctx context.Context, way func(*slowWeChat) func(context.Context, int) error, say func(d *drawing, w *slowWeChat, usual, slow time.Duration)) (d drawing, err error) {
	d = drawing{header: []string{"sent_at_s", "call_s", "taken"}}
	w, err := s.slowWeChat(ctx)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, w.stop(ctx)) }()
	calls, err := w.play(ctx, way(w))
	if err != nil {
		return d, err
	}
	line := chart.Series{Name: "call to send", Plain: true}
	var usual, slow time.Duration
	taken := 3 // those that warmed up
	for _, c := range calls {
		d.rows = append(d.rows, []any{c.at, c.took, c.ok})
		line.Points = append(line.Points, chart.Point{X: c.at.Seconds(), Y: c.took.Seconds()})
		if c.at >= w.phase && c.at < 2*w.phase {
			slow = max(slow, c.took)
		} else {
			usual = max(usual, c.took)
		}
		if c.ok {
			taken++
		}
	}
	say(&d, w, usual, slow)
	arrived := w.drained(ctx, taken)
	d.claim(taken == len(calls)+3 && arrived == taken, "every message reaches WeChat, once", "%d sent, %d taken, %d arrived", len(calls)+3, taken, arrived)
	d.chart = chart.Chart{
		Note: fmt.Sprintf("a template message every %v; between %v and %v WeChat takes %v for each answer", sendEvery, w.phase, 2*w.phase, w.delay),
		X:    chart.Axis{Label: "sent at, s"}, Y: chart.Axis{Label: "time of the call, s"}, Series: []chart.Series{line},
		Marks: []chart.Mark{{Value: w.phase.Seconds(), Vertical: true, Label: "slow from here"}, {Value: 2 * w.phase.Seconds(), Vertical: true, Label: "to here"}},
	}
	return d, nil
}

// drained waits until so many messages have reached WeChat, as long as more come.
func (w *slowWeChat) drained(ctx context.Context, want int) (n int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		if got := w.reached(); got > n {
			n, last = got, time.Now()
		}
		if n >= want || time.Since(last) > w.delay+20*time.Second || ctx.Err() != nil {
			return n
		}
		<-tick.C
	}
}
