package app

import (
	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
)

// checkEdge tells what the door lets in that it need not, and which of its
// settings may be slips of the pen.
func (d *doctor) checkEdge() []finding {
	if !d.needs(RoleProxy) {
		return nil
	}
	var out []finding
	for _, slip := range d.cfg.Proxy.Repeats.Warnings() {
		out = append(out, warn("correct it, unless WeChat has that event", "%s", slip))
	}
	for _, a := range d.cfg.Accounts {
		allow, _ := run.ParseAddresses(a.AllowFrom) // was checked when the configuration was read
		switch {
		case a.Mode == wechat.ModePlain && allow.Any():
			out = append(out, warn("switch it to safe mode, or list in allow_from where WeChat's callbacks come from",
				"account %s: mode plain from any address: WeChat signs no body, so whoever sees one request can send others for as long as it is fresh", a.Name))
		case a.Mode == wechat.ModePlain:
			out = append(out, warn("switch it to safe mode", "account %s: mode plain: WeChat signs no body; only allow_from keeps forgeries out", a.Name))
		}
		if !a.PrevUntil.IsZero() && !d.now().Before(a.PrevUntil) {
			out = append(out, warn("take prev_token, prev_encoding_aes_key and prev_until out", "account %s: the overlap with its previous secrets is over", a.Name))
		}
	}
	return out
}
