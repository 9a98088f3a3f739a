package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/dedupe"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/lease"
	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/proxy"
	"tidegate/receipts/store"
	"tidegate/robot"
	"tidegate/robot/engine"
	"tidegate/sender"
)

// part is one role made ready to run.
type part struct {
	role     Role
	services []run.Service
	ready    map[string]func(context.Context) error
	addr     map[string]string       // what listens where
	accounts func(Config) error      // takes changed accounts
	rules    func(*engine.Rules)     // takes changed rules; nil if it has none
	keys     func(Config) error      // takes changed keys of the operations listener; nil before it is open
	handler  http.Handler            // its share of the public API; nil if it has none
	store    store.Store             // the rows, of the receipts role
	ops      map[string]http.Handler // its share of the operations listener, by pattern ("GET /ops/v1/…")
	steer    map[string]http.Handler // the same for what changes how the deployment runs
	personal map[string]http.Handler // the same for what is kept of one follower

	stats func() []kafka.PartitionStats // how far behind the robot role is
}

// partOptions changes how a part is built; the zero value is production.
type partOptions struct {
	rules   rulesSource
	breakBy string // dev only
	breaker **breaker
}

// rulesSource is a rules file, or its content.
type rulesSource struct {
	path    string
	content []byte
}

// load reads the rules for a role. The door calls no back end, so it does not
// ask whether the rules' back ends are configured: its file need not name them.
func (r rulesSource) load(c Config, role Role) (*engine.Rules, error) {
	known := knownTo(c, role)
	read := engine.Load
	if r.content != nil {
		read = func(path string, known engine.Known) (*engine.Rules, error) {
			return engine.Parse(path, r.content, known)
		}
	}
	rules, err := read(r.path, known)
	if err == nil && role == RoleRobot && rules.Converses() && c.Robot.Dialogue.Key == "" {
		err = fmt.Errorf("%s: a rule holds dialogues, and there is no place for them: give robot.dialogue.key, the same for all robots ('openssl rand -base64 32' makes one)", r.path)
	}
	if err != nil {
		return nil, err
	}
	return rules, nil
}

// knownTo are the names that a role's rules may use.
func knownTo(c Config, role Role) (known engine.Known) {
	if role != RoleProxy {
		known.Backends, known.Bots, known.Engines = c.Robot.BackendNames(), c.Robot.BotNames(), c.Robot.EngineNames()
	}
	for _, a := range c.Accounts {
		known.Accounts = append(known.Accounts, a.Name)
	}
	return known
}

// register adds the part's readiness and endpoints to the operations listener.
func (p *part) register(ops *telemetry.Ops) {
	for pattern, h := range p.ops {
		ops.Handle(pattern, h)
	}
	for pattern, h := range p.steer {
		ops.HandleSteering(pattern, h)
	}
	for pattern, h := range p.personal {
		ops.HandlePersonal(pattern, h)
	}
	for name, check := range p.ready {
		ops.AddReadiness(string(p.role)+" "+name, check)
	}
}

// buildPart makes a role's room over the engines. Every part opens the producer
// after Redis and SQL, so that a stop flushes it before they close.
func buildPart(ctx context.Context, role Role, e *engines, o partOptions) (*part, error) {
	switch role {
	case RoleProxy:
		return buildProxy(e, o)
	case RoleRobot:
		return buildRobot(ctx, e, o)
	case RoleSender:
		return buildSender(ctx, e)
	case RoleReceipts:
		return buildReceipts(ctx, e)
	}
	return nil, fmt.Errorf("unknown role %q", role)
}

func buildProxy(e *engines, o partOptions) (*part, error) {
	r, err := e.Redis()
	if err != nil {
		return nil, err
	}
	producer, err := e.Producer()
	if err != nil {
		return nil, err
	}
	opt := dedupe.DefaultOptions()
	opt.Registerer, opt.Log = e.reg, e.log.Named("dedupe")
	queues, err := e.QueueAdmin()
	if err != nil {
		return nil, err
	}
	marks := dedupe.New(r, opt)
	d := proxy.Deps{
		Topics: e.cfg.Topics.Names(), Publisher: producer, Claims: marks, Notices: marks, Admin: queues,
		Log: e.log.Named("proxy"), Registry: e.reg, Alarms: e.Alarms(),
	}
	d.Groups.Robot, d.Groups.Receipts = e.cfg.Robot.Group, e.cfg.Receipts.Group
	if o.rules.path != "" {
		rules, err := o.rules.load(e.cfg, RoleProxy)
		if err != nil {
			return nil, err
		}
		d.AtOnce = rules.AtOnce
		e.rules.took(RoleProxy, rules)
	}
	room, err := proxy.New(e.cfg.Proxy, e.cfg.proxyAccounts(), d)
	if err != nil {
		return nil, err
	}
	admin, err := e.Admin()
	if err != nil {
		return nil, err
	}
	ops := map[string]http.Handler{}
	if h := room.Queues(); h != nil {
		ops["GET /ops/v1/queues"] = h
	}
	return &part{
		role: RoleProxy, services: []run.Service{room}, addr: map[string]string{"door": room.Addr()}, ops: ops,
		ready:    map[string]func(context.Context) error{"queue": either(admin.Ping, room.CanSpool)},
		accounts: func(c Config) error { return room.SetAccounts(c.proxyAccounts()) },
		rules: func(r *engine.Rules) {
			room.SetAtOnce(r.AtOnce)
			e.rules.took(RoleProxy, r)
		},
	}, nil
}

// either is ready when the spool has room or the queue answers: both make a
// callback durable. The spool is asked first: a queue that hangs would use up
// the time that a load balancer has for the answer.
func either(queue func(context.Context) error, spool func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := spool()
		if err == nil {
			return nil
		}
		if e := queue(ctx); e != nil {
			return errors.Join(e, err)
		}
		return nil
	}
}

func buildRobot(ctx context.Context, e *engines, o partOptions) (*part, error) {
	r, err := e.Redis()
	if err != nil {
		return nil, err
	}
	producer, err := e.Producer()
	if err != nil {
		return nil, err
	}
	rules, err := o.rules.load(e.cfg, RoleRobot)
	if err != nil {
		return nil, err
	}
	live, err := e.Steering(ctx)
	if err != nil {
		return nil, err
	}
	permits, err := e.Permits()
	if err != nil {
		return nil, err
	}
	credits, err := e.Credits()
	if err != nil {
		return nil, err
	}
	d := robot.Deps{
		Knobs: live.Knobs(), Permits: permits, Credits: credits,
		Kafka: e.cfg.Kafka, Topics: e.cfg.Topics.Names(), Publisher: producer, Redis: r, Rules: rules,
		Log: e.log.Named("robot"), Hasher: e.hasher, Registry: e.reg, Alarms: e.Alarms(), Node: e.node,
	}
	if o.breakBy != "" {
		*o.breaker = newBreaker(o.breakBy, producer)
		d.Publisher = *o.breaker
	}
	room, err := robot.New(e.cfg.Robot, e.cfg.robotAccounts(), d)
	if err != nil {
		return nil, err
	}
	e.rules.took(RoleRobot, rules)
	admin, err := e.Admin()
	if err != nil {
		return nil, err
	}
	public, err := robotAPI(ctx, e, room)
	if err != nil {
		return nil, err
	}
	var worked run.Service = room
	if credits != nil {
		worked = behind{room, credits} // what is noted while the room drains counts
	}
	return live.into(&part{
		role: RoleRobot, services: []run.Service{worked}, stats: room.Stats, ops: robotOps(room), personal: room.PersonalOps(), handler: public,
		ready:    map[string]func(context.Context) error{"queue": admin.Ping},
		accounts: func(c Config) error { return room.SetAccounts(c.robotAccounts()) },
		rules: func(r *engine.Rules) {
			if err := room.SetRules(r); err != nil {
				e.log.Error("new rules are not taken; the old ones stay", zap.Error(err))
				e.rules.refuse(RoleRobot, err)
				return
			}
			e.rules.took(RoleRobot, r)
		},
	}), nil
}

// robotOps are the robot's endpoints on the operations listener.
func robotOps(room *robot.Robot) map[string]http.Handler {
	if h := room.Guards(); h != nil {
		return map[string]http.Handler{"GET /ops/v1/guard/{backend}": h}
	}
	return nil
}

// robotAPI is the robot's share of the public API, if it is to have one.
func robotAPI(ctx context.Context, e *engines, room *robot.Robot) (http.Handler, error) {
	if !e.cfg.Robot.PublicAPI {
		return nil, nil
	}
	db, err := e.DB(ctx)
	if err != nil {
		return nil, err
	}
	if err := api.Migrate(ctx, db); err != nil {
		return nil, err
	}
	return room.Public(api.NewKeys(api.NewBook(db, nil))), nil
}

func buildSender(ctx context.Context, e *engines) (*part, error) {
	r, err := e.Redis()
	if err != nil {
		return nil, err
	}
	db, err := e.DB(ctx)
	if err != nil {
		return nil, err
	}
	producer, err := e.Producer()
	if err != nil {
		return nil, err
	}
	if err := api.Migrate(ctx, db); err != nil {
		return nil, err
	}
	live, err := e.Steering(ctx)
	if err != nil {
		return nil, err
	}
	permits, err := e.Permits()
	if err != nil {
		return nil, err
	}
	credits, err := e.Credits()
	if err != nil {
		return nil, err
	}
	lines, err := e.Lines(live)
	if err != nil {
		return nil, err
	}
	e.stack.Push("lines", func(context.Context) error { lines.CloseIdle(); return nil })
	calls := wechat.NewClientBy(lines, e.cfg.WeChat.Timeout)
	numbers := lease.NewNumbers(r, lease.NumbersOptions{})
	e.stack.Push("worker number", numbers.Release)
	cfg := e.cfg.Sender
	if cfg.Node == sender.DefaultConfig().Node {
		cfg.Node = e.node
	}
	room, err := sender.New(ctx, cfg, sender.Deps{
		Kafka: e.cfg.Kafka, Publisher: producer, Redis: r, DB: db, WeChat: calls, Keys: api.NewKeys(api.NewBook(db, nil)),
		IDs: idgen.NewGenerator(numbers, nil), Topics: e.cfg.Topics.Names(), Log: e.log, Reg: e.reg, Alarms: e.Alarms(),
		Knobs: live.Knobs(), Permits: permits, Credits: credits, Orders: live.Orders(), MaxNodes: e.cfg.Permits.MaxNodes,
	})
	if err != nil {
		return nil, err
	}
	e.held = room
	if err := room.SetAccounts(e.cfg.senderAccounts()); err != nil {
		return nil, err
	}
	admin, err := e.Admin()
	if err != nil {
		return nil, err
	}
	return linesInto(live.into(&part{
		role: RoleSender, services: []run.Service{lines, run.Func("sender", room.Run)}, handler: room.Handler(),
		ready: map[string]func(context.Context) error{"queue": admin.Ping, "database": db.Ping},
		accounts: func(c Config) error {
			return errors.Join(lines.SetAccounts(c.lineOrders()), room.SetAccounts(c.senderAccounts()))
		},
	}), live, lines, e.node, e.log), nil
}
