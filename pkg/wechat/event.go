package wechat

import "strings"

// MayAnswer reports whether the callback may be answered with content in the
// acknowledgement itself (D2). WeChat counts content in answer to reports,
// LOCATION, VIEW and unsubscribe as an error of ours, and enough errors stop
// the account's pushes; what is not known to be safe is therefore answered with
// Success only. A quarantined message of a known user may be answered, so that
// he gets the fallback text instead of silence.
func (m *Message) MayAnswer() bool {
	if m.FromUserName == "" || m.ToUserName == "" {
		return false
	}
	switch m.MsgType {
	case TypeText, TypeImage, TypeVoice, TypeVideo, TypeShortVideo, TypeLocation, TypeLink, TypeFile:
		return true
	case TypeEvent:
	default:
		return false
	}
	if m.Quarantined {
		return false
	}
	switch m.Event {
	case EventSubscribe, EventScan, EventClick, EventScanCodePush, EventScanCodeWaitMsg:
		return true
	}
	return false
}

// Scene returns the scene of the QR code that brought the user here, and
// whether there was one: of a new follower (without the prefix qrscene_) or of
// one who scans again.
func (m *Message) Scene() (string, bool) {
	switch {
	case m.MsgType != TypeEvent:
		return "", false
	case m.Event == EventScan:
		return m.EventKey, true
	case m.Event == EventSubscribe:
		return strings.CutPrefix(m.EventKey, "qrscene_")
	}
	return "", false
}

// ScanCode is what a user's camera read after pressing a scan button.
type ScanCode struct {
	Type   string // qrcode, barcode, …
	Result string // any text: it is what somebody printed
}

// ScanCode returns the scan of scancode_push and scancode_waitmsg.
func (m *Message) ScanCode() (ScanCode, bool) {
	e, ok := m.Root().first("ScanCodeInfo")
	return ScanCode{Type: e.Get("ScanType"), Result: e.Get("ScanResult")}, ok
}

// Pictures is what pic_sysphoto, pic_photo_or_album and pic_weixin announce;
// the pictures themselves come as messages of their own.
type Pictures struct {
	Count int64
	MD5   []string
}

// Pictures returns the announced pictures.
func (m *Message) Pictures() (Pictures, bool) {
	e, ok := m.Root().first("SendPicsInfo")
	if !ok {
		return Pictures{}, false
	}
	p := Pictures{Count: e.int("Count")}
	list, _ := e.first("PicList")
	for _, item := range list.All("item") {
		p.MD5 = append(p.MD5, item.Get("PicMd5Sum"))
	}
	return p, true
}

// Place is a place that a user chose. Coordinates are kept as text: they have
// up to six digits behind the point and nobody here computes with them.
type Place struct {
	Latitude, Longitude string
	Scale               string
	Label               string
	Name                string // may be empty
}

// Place returns the place of a location message or of location_select.
func (m *Message) Place() (Place, bool) {
	e := m.Root()
	if m.MsgType == TypeEvent {
		var ok bool
		if e, ok = e.first("SendLocationInfo"); !ok {
			return Place{}, false
		}
	} else if m.MsgType != TypeLocation {
		return Place{}, false
	}
	return Place{
		Latitude:  strings.TrimSpace(e.Get("Location_X")),
		Longitude: strings.TrimSpace(e.Get("Location_Y")),
		Scale:     strings.TrimSpace(e.Get("Scale")),
		Label:     e.Get("Label"),
		Name:      e.Get("Poiname"),
	}, true
}

// Choice is a user's decision about one subscription template.
type Choice struct {
	TemplateID string
	Accepted   bool
	Status     string // as WeChat wrote it
	Scene      string // of a popup: 1 web page, 2 article
}

// Choices returns the decisions that subscribe_msg_popup_event and
// subscribe_msg_change_event report.
func (m *Message) Choices() []Choice {
	if m.Event != EventSubscribeMsgPopup && m.Event != EventSubscribeMsgChange {
		return nil
	}
	var out []Choice
	for _, it := range m.list() {
		status := strings.TrimSpace(it.Get("SubscribeStatusString"))
		out = append(out, Choice{
			TemplateID: strings.TrimSpace(it.Get("TemplateId")),
			Accepted:   status == "accept",
			Status:     status,
			Scene:      strings.TrimSpace(it.Get("PopupScene")),
		})
	}
	return out
}

// list returns the List items of the three subscription events. Copies of the
// documentation name the wrapper differently for the same event, so any of them
// is accepted, and so is none.
func (m *Message) list() []Element {
	root := m.Root()
	for _, wrapper := range [...]string{"SubscribeMsgPopupEvent", "SubscribeMsgChangeEvent", "SubscribeMsgSentEvent"} {
		if e, ok := root.first(wrapper); ok {
			return e.All("List")
		}
	}
	return root.All("List")
}

// MassResult is the report about a mass send.
type MassResult struct {
	Status MassStatus
	// Total is the audience, Filtered what was left after filters. WeChat says
	// that Filtered is Sent plus Errors "in principle"; it is not always.
	Total, Filtered, Sent, Errors int64
	// CheckState is the verdict of the originality check: 1 no reprint, 2 a
	// reprint that may be sent, 3 a reprint that may not; 0 is seen as well.
	CheckState int64
	Copyright  []CopyrightResult
	Articles   []ArticleURL
}

// CopyrightResult is the originality check of one article.
type CopyrightResult struct {
	Article             int64
	AuditState          int64
	OriginalURL         string
	CanReprint          bool
	NeedReplaceContent  bool
	NeedShowReprintFrom bool
}

// ArticleURL is the address of one article that was sent.
type ArticleURL struct {
	Article int64
	URL     string
}

// MassResult returns the report of MASSSENDJOBFINISH. Both result blocks may
// be empty or absent.
func (m *Message) MassResult() (MassResult, bool) {
	if !m.IsReceipt() || m.Event != EventMassSent {
		return MassResult{}, false
	}
	e := m.Root()
	r := MassResult{
		Status:     ParseMassStatus(e.Get("Status")),
		Total:      e.int("TotalCount"),
		Filtered:   e.int("FilterCount"),
		Sent:       e.int("SentCount"),
		Errors:     e.int("ErrorCount"),
		CheckState: e.int("CopyrightCheckResult", "CheckState"),
	}
	for _, it := range e.items("CopyrightCheckResult") {
		r.Copyright = append(r.Copyright, CopyrightResult{
			Article:             it.int("ArticleIdx"),
			AuditState:          it.int("AuditState"),
			OriginalURL:         it.Get("OriginalArticleUrl"),
			CanReprint:          it.int("CanReprint") == 1,
			NeedReplaceContent:  it.int("NeedReplaceContent") == 1,
			NeedShowReprintFrom: it.int("NeedShowReprintSource") == 1,
		})
	}
	for _, it := range e.items("ArticleUrlResult") {
		r.Articles = append(r.Articles, ArticleURL{Article: it.int("ArticleIdx"), URL: it.Get("ArticleUrl")})
	}
	return r, true
}

// items returns the entries of block/ResultList.
func (e Element) items(block string) []Element {
	b, _ := e.first(block)
	list, _ := b.first("ResultList")
	return list.All("item")
}
