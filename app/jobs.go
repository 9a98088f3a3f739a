package app

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/control"
	"tidegate/pkg/schedule"
)

// alarmJobOverdue is about a job whose next success is late, whatever the
// reason: it fails, it was missed, or nobody leads.
const alarmJobOverdue = "job_overdue"

// noJobs says why a role has nothing to run.
const noJobs = "no job is configured here: the daily report of failures needs receipts.report.dir"

// withJobs gives the part a share in running the jobs of its team, and their
// endpoints. Without jobs it needs no Redis and only says so.
func (e *engines) withJobs(ctx context.Context, p *part, jobs []schedule.Job) error {
	h := jobsHandler{node: e.node, log: e.log.Named("jobs")}
	if len(jobs) > 0 {
		s, err := e.scheduler(ctx, string(p.role), jobs)
		if err != nil {
			return err
		}
		h.jobs, h.audit = s, control.NewStore(e.db, nil)
		p.services = append(p.services, s)
	}
	if p.ops == nil {
		p.ops = map[string]http.Handler{}
	}
	p.ops["GET /ops/v1/jobs"] = http.HandlerFunc(h.all)
	p.ops["GET /ops/v1/jobs/{name}"] = http.HandlerFunc(h.one)
	if p.steer == nil {
		p.steer = map[string]http.Handler{}
	}
	p.steer["POST /ops/v1/jobs/{name}/run"] = http.HandlerFunc(h.run)
	return nil
}

func (e *engines) scheduler(ctx context.Context, team string, jobs []schedule.Job) (*schedule.Scheduler, error) {
	db, err := e.DB(ctx)
	if err != nil {
		return nil, err
	}
	r, err := e.Redis()
	if err != nil {
		return nil, err
	}
	for _, migrate := range []func() error{
		func() error { return schedule.Migrate(ctx, db) },
		func() error { return control.Migrate(ctx, db) }, // for the audit of runs by hand
	} {
		if err := migrate(); err != nil {
			return nil, err
		}
	}
	return schedule.New(schedule.Options{
		Config: e.cfg.Jobs, Team: team, Node: e.node, Jobs: jobs, Store: schedule.NewStore(db, nil), Redis: r,
		Log: e.log.Named("jobs"), Registry: e.reg, Overdue: e.tellOverdue,
	})
}

// tellOverdue raises and ends the alarm about a job.
func (e *engines) tellOverdue(job string, late time.Duration, why string) {
	if late < e.cfg.Jobs.Overdue {
		e.Alarms().Resolve(alarmJobOverdue, job)
		return
	}
	late = late.Truncate(time.Minute)
	text := fmt.Sprintf("the job %s has been due for %s and has not succeeded", job, late)
	textZH := fmt.Sprintf("定时任务 %s 已逾期 %s，尚未成功执行", job, late)
	if why != "" {
		text, textZH = text+": "+why, textZH+"："+why
	}
	const look = "; 'tidegate jobs log %s' tells what happened, 'tidegate jobs run %s' makes up for it"
	const lookZH = "；请运行 tidegate jobs log %s 查看原因，tidegate jobs run %s 可补执行"
	e.Alarms().Fire(alarm.Alarm{Name: alarmJobOverdue, Subject: job, Severity: alarm.Warning,
		Text: text + fmt.Sprintf(look, job, job), TextZH: textZH + fmt.Sprintf(lookZH, job, job)})
}

// jobsHandler is the operations API of scheduled jobs. Reading needs the scope
// read, running a job the scope steer (part.steer).
type jobsHandler struct {
	node  string
	jobs  *schedule.Scheduler // nil: none
	audit *control.Store
	log   *zap.Logger
}

// hasJobs tells that the roles have something to run at fixed times.
func (d *doctor) hasJobs() bool { return d.needs(RoleReceipts) && d.cfg.Receipts.Report.Dir != "" }
