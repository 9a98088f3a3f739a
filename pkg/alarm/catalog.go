package alarm

// title is what a kind of condition is called where people read it.
type title struct{ en, zh string }

// titles names every alarm that the rooms fire. deployments/prometheus/RUNBOOK.md
// has a section for each; a test there holds both lists to the code.
var titles = map[string]title{
	"callbacks_refused":   {"Callbacks are refused with 503", "回调被拒绝（503）"},
	"kafka_away":          {"Kafka does not take callbacks", "Kafka 无法写入回调"},
	"spool_held":          {"Callbacks wait on a node's disk", "回调滞留在节点磁盘"},
	"spool_filling":       {"A node's spool is nearly full", "节点缓冲盘将满"},
	"spool_damaged":       {"A spool has put records aside", "节点缓冲盘有损坏或无法投递的记录"},
	"redis_unchecked":     {"Callbacks are taken without a duplicate check", "Redis 不可用，回调未去重"},
	"markfail_suspected":  {"WeChat may have paused an account", "疑似被微信暂停推送回调"},
	"token_trouble":       {"No access token for an account", "无法获取公众号 access_token"},
	"account_stopped":     {"WeChat refuses an account", "公众号调用被微信拒绝"},
	"api_stopped":         {"WeChat refuses an API to an account", "公众号接口权限被拒绝"},
	"quota_used":          {"The day's quota of an API is used up", "接口当日额度已用完"},
	"held_full":           {"Too many messages are held", "暂存消息接近上限"},
	"line_down":           {"A line to WeChat cannot be reached", "到微信的线路不可用"},
	"no_line":             {"No line to WeChat can be reached", "所有到微信的线路均不可用"},
	"wechat_trouble":      {"WeChat's API does not answer properly", "微信接口异常"},
	"queue_depth":         {"Many records wait in a queue", "队列积压"},
	"queue_age":           {"A queue's oldest record is old", "队列最早记录等待过久"},
	"queue_faulty":        {"A queue makes no progress", "队列停滞，无处理进展"},
	"queue_slow":          {"A queue is slow", "队列处理偏慢"},
	"queue_overload":      {"Most queues are overloaded", "大多数队列过载"},
	"queue_rewind":        {"A queue's position went back", "队列消费位点回退"},
	"queue_skipped":       {"Records of a queue were deleted unread", "队列记录未读即被清理，已丢失"},
	"queue_retention":     {"Records of a queue will be deleted unread", "队列记录临近保留期，可能未读即被清理"},
	"robot_stalled":       {"A robot hangs and has left its partitions", "机器人卡死，已退出所负责的分区"},
	"robot_frozen":        {"A robot's process stood still", "机器人进程曾整体停顿"},
	"robot_shedding":      {"Callbacks are refused because of overload", "回调过载，正在按级别拒绝"},
	"webhook_disabled":    {"Webhooks to an app are disabled", "到业务系统的 Webhook 已停用"},
	"webhook_failing":     {"Webhooks to an app fail", "到业务系统的 Webhook 持续失败"},
	"job_overdue":         {"A scheduled job is overdue", "定时任务逾期未成功"},
	"push_failures":       {"More pushes fail than usual", "推送失败率异常"},
	"push_failure_reason": {"More pushes fail for one reason than usual", "推送因某一原因失败的比例异常"},
	"push_no_receipt":     {"More pushes have no receipt than usual", "推送无回执的比例异常"},
	"user_repeats":        {"A user repeats the same action", "用户频繁重复操作"},
}

// Names lists the kinds that have a title.
func Names() []string {
	out := make([]string, 0, len(titles))
	for n := range titles {
		out = append(out, n)
	}
	return out
}

// titleOf gives the name itself for a kind without a title.
func titleOf(name, language string) string {
	t, ok := titles[name]
	switch {
	case !ok:
		return name
	case language == Chinese:
		return t.zh
	}
	return t.en
}
