package receipts

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/run"
	"tidegate/pkg/wire"
)

// The alarms about shares.
const (
	alarmFailures  = "push_failures"
	alarmReason    = "push_failure_reason"
	alarmNoReceipt = "push_no_receipt"
)

// bandWatch looks at the counts again and again. All of what it knows is in the
// database, so every node sees the same and one of them tells.
type bandWatch struct {
	r      *Room
	firing map[[2]string]bool // name and subject
}

// watchBands runs until ctx ends.
func (r *Room) watchBands(ctx context.Context) error {
	if r.cfg.Bands.Every == 0 {
		return nil
	}
	run.Every(ctx, r.cfg.Bands.Every, func(ctx context.Context) {
		if err := r.bands.look(ctx); err != nil && ctx.Err() == nil {
			r.d.Log.Warn("shares of failures cannot be judged; it is tried again", zap.Error(err))
		}
	})
	return nil
}

// look judges the running hour and the one before. What had no receipt is known
// only when the time for one is over, so those hours lie so far back.
func (w *bandWatch) look(ctx context.Context) error {
	c, now := w.r.cfg.Bands, w.r.d.Now().UTC().Truncate(time.Hour)
	late := now.Add(-w.r.cfg.NoReceiptAfter).Truncate(time.Hour)
	ctx, cancel := bounded(ctx)
	defer cancel()
	counts, err := w.r.store.HourCounts(ctx, late.Add(-time.Hour-c.History), now.Add(time.Hour))
	if err != nil {
		return err
	}
	all := readings(counts)
	soon, old := map[measure]map[time.Time]reading{}, map[measure]map[time.Time]reading{}
	for m, by := range all {
		if m.alarm == alarmNoReceipt {
			old[m] = by
		} else {
			soon[m] = by
		}
	}
	found := append(c.judge(soon, []time.Time{now.Add(-time.Hour), now}), c.judge(old, []time.Time{late.Add(-time.Hour), late})...)
	w.tell(found)
	return nil
}

// tell fires what is out of its band and resolves what no longer is.
func (w *bandWatch) tell(found []finding) {
	is := map[[2]string]bool{}
	reasons := 0
	for _, f := range found {
		if f.alarm == alarmReason {
			if reasons++; reasons > w.r.cfg.Bands.MaxAlarms {
				continue // the share of all failures is told anyway
			}
		}
		a := w.r.bandAlarm(f)
		is[[2]string{a.Name, a.Subject}] = true
		w.r.d.Alarms.Fire(a)
	}
	for k := range w.firing {
		if !is[k] {
			w.r.d.Alarms.Resolve(k[0], k[1])
		}
	}
	w.firing = is
}

func (r *Room) bandAlarm(f finding) alarm.Alarm {
	subject, what, whatZH := f.account, "of pushes failed", "的推送失败"
	switch f.alarm {
	case alarmReason:
		reason := string(f.state)
		if f.errcode != 0 {
			reason += " " + strconv.Itoa(f.errcode)
		}
		subject += " " + reason
		what, whatZH = "of pushes ended as "+reason, "的推送以 "+reason+" 结束"
		if f.reason != "" && f.state != wire.RefusedByUser {
			what += " (" + f.reason + ")"
		}
	case alarmNoReceipt:
		what, whatZH = "of pushes that WeChat accepted had no receipt within "+r.cfg.NoReceiptAfter.String(), "的已受理推送未收到回执"
	}
	usual := fmt.Sprintf("usual are %s, at most %s", percent(f.median), percent(f.high))
	usualZH := fmt.Sprintf("通常为 %s，上限 %s", percent(f.median), percent(f.high))
	if f.hours < r.cfg.Bands.MinHours {
		usual, usualZH = "too little is known of what is usual, but more than "+percent(r.cfg.Bands.Always)+" never is", "历史不足，但超过 "+percent(r.cfg.Bands.Always)+" 必属异常"
	}
	hour := f.hour.In(r.loc).Format("15:04")
	return alarm.Alarm{
		Name: f.alarm, Subject: subject, Severity: alarm.Warning,
		Text: fmt.Sprintf("account %s: %s (%d of %d) %s in the hour from %s; %s; GET /v1/reports/failures?account=%s shows the reasons",
			f.account, percent(f.share()), f.part, f.of, what, hour, usual, f.account),
		TextZH: fmt.Sprintf("公众号 %s：%s 起的一小时内 %s（%d/%d）%s；%s；原因见 GET /v1/reports/failures?account=%s",
			f.account, hour, percent(f.share()), f.part, f.of, whatZH, usualZH, f.account),
	}
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }
