package webhook

import (
	"context"
	"fmt"
	"time"

	"tidegate/pkg/alarm"
)

// alarmDisabled is about an endpoint that is no longer called; alarmFailing
// about one that has taken nothing for a while.
const (
	alarmDisabled = "webhook_disabled"
	alarmFailing  = "webhook_failing"
	// failingLong is when failures are told to a person.
	failingLong = 15 * time.Minute
)

// Keep settles what became too old, deletes what was kept long enough, and shows
// and tells how the endpoints stand. It may run on every node.
func (h *Hub) Keep(ctx context.Context, retention time.Duration) error {
	now := h.d.Now()
	ms := func(before time.Duration) int64 { return now.Add(-before).UnixMilli() }
	for _, q := range []struct {
		text string
		args []any
	}{
		// What nobody could send in time: an endpoint was disabled or taken out.
		{`UPDATE webhook_events SET state = 'failed', settled_at = $1, error = CASE WHEN error = '' THEN 'nothing could be sent in time' ELSE error END
			WHERE state = 'pending' AND seq IN (SELECT seq FROM webhook_events WHERE state = 'pending' AND give_up_at <= $1 AND claimed_until <= $1 ORDER BY give_up_at LIMIT $2)`,
			[]any{now.UnixMilli(), stepRows}},
		{`DELETE FROM webhook_events WHERE seq IN (SELECT seq FROM webhook_events WHERE state <> 'pending' AND settled_at < $1 AND state = 'delivered' LIMIT $2)`,
			[]any{ms(h.cfg.KeepDelivered), stepRows}},
		{`DELETE FROM webhook_events WHERE seq IN (SELECT seq FROM webhook_events WHERE state <> 'pending' AND settled_at < $1 AND state = 'failed' LIMIT $2)`,
			[]any{ms(h.cfg.KeepFailed), stepRows}},
		{`DELETE FROM webhook_targets WHERE message IN (SELECT message FROM webhook_targets WHERE created_at < $1 LIMIT $2)`,
			[]any{ms(retention), stepRows}},
	} {
		for n := int64(stepRows); n >= stepRows && ctx.Err() == nil; {
			var err error
			if n, err = h.d.DB.Exec(ctx, q.text, q.args...); err != nil {
				return err
			}
		}
	}
	return h.show(ctx, now)
}

// show sets the metrics and the alarms by the rows, which all nodes share, so
// that each of them says the same.
func (h *Hub) show(ctx context.Context, now time.Time) error {
	all, err := h.standings(ctx)
	if err != nil {
		return err
	}
	for name, s := range all {
		age, off := 0.0, 0.0
		if s.oldest > 0 {
			age = now.Sub(time.UnixMilli(s.oldest)).Seconds()
		}
		if s.disabledAt > 0 {
			off = 1
		}
		h.met.pending.WithLabelValues(name).Set(float64(s.pending))
		h.met.oldest.WithLabelValues(name).Set(max(age, 0))
		h.met.disabled.WithLabelValues(name).Set(off)
		h.tell(name, s, now)
	}
	return nil
}

func (h *Hub) tell(name string, s *standing, now time.Time) {
	if s.disabledAt == 0 {
		h.d.Alarms.Resolve(alarmDisabled, name)
	} else {
		h.d.Alarms.Fire(alarm.Alarm{Name: alarmDisabled, Subject: name, Severity: alarm.Critical,
			Text: fmt.Sprintf("webhooks to %s are disabled since %s: %s (last: %s); %d events wait, each for at most %s; when the receiver is well: 'tidegate webhooks enable %s --reason …'",
				name, clock(s.disabledAt), s.disabledWhy, s.lastError, s.pending, h.cfg.GiveUpAfter, name),
			TextZH: fmt.Sprintf("到 %s 的 Webhook 已于 %s 停用：%s（最近错误：%s）；%d 个事件等待中，各自最多保留 %s；接收方恢复后运行 tidegate webhooks enable %s --reason …",
				name, clock(s.disabledAt), s.disabledWhy, s.lastError, s.pending, h.cfg.GiveUpAfter, name)})
	}
	since := time.UnixMilli(s.failingSince)
	if s.disabledAt > 0 || s.failingSince == 0 || now.Sub(since) < failingLong {
		h.d.Alarms.Resolve(alarmFailing, name)
		return
	}
	h.d.Alarms.Fire(alarm.Alarm{Name: alarmFailing, Subject: name, Severity: alarm.Warning,
		Text: fmt.Sprintf("webhooks to %s have failed since %s (last: %s); %d events wait; without a success it is disabled after %s",
			name, clock(s.failingSince), s.lastError, s.pending, h.cfg.DisableAfter),
		TextZH: fmt.Sprintf("到 %s 的 Webhook 自 %s 起持续失败（最近错误：%s）；%d 个事件等待中；持续 %s 无成功将停用",
			name, clock(s.failingSince), s.lastError, s.pending, h.cfg.DisableAfter)})
}
