package wechatsim

import "fmt"

// Text is a user's text message.
func Text(openid, content string) Stimulus {
	return Stimulus{OpenID: openid, Type: "text", Fields: []Field{text("Content", content)}}
}

// MsgMenu is a click on an item of a msgmenu message: it arrives as text, but
// allows replies by the rule of the menu.
func MsgMenu(openid, item, content string) Stimulus {
	s := Text(openid, content)
	s.MenuItem = item
	return s
}

// Menu is a press of a menu button that sends its key.
func Menu(openid, key string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventClick, Fields: []Field{text("EventKey", key)}}
}

// View is a press of a menu button that opens a page.
func View(openid, url string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventView,
		Fields: []Field{text("EventKey", url), number("MenuId", 449181)}}
}

const simTicket = "gQH47zwAAAAAAAAAAS5odHRwOi8vd2VpeGluLnFxLmNvbS9xLzAyc2ltdWxhdGVkQQAC"

// Scan is a follower's scan of a QR code with a scene.
func Scan(openid, scene string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventScan,
		Fields: []Field{text("EventKey", scene), text("Ticket", simTicket)}}
}

// Subscribe is a new follower; a scene makes it come from a QR code.
func Subscribe(openid, scene string) Stimulus {
	s := Stimulus{OpenID: openid, Type: "event", Event: EventSubscribe, Fields: []Field{text("EventKey", "")}}
	if scene != "" {
		s.Fields = []Field{text("EventKey", "qrscene_"+scene), text("Ticket", simTicket)}
	}
	return s
}

// Unsubscribe is a follower who leaves.
func Unsubscribe(openid string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventUnsubscribe, Fields: []Field{text("EventKey", "")}}
}

// Location is the position event that WeChat sends while a chat is open.
func Location(openid string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventLocation, Fields: []Field{
		{Name: "Latitude", Text: "31.230416", Number: true},
		{Name: "Longitude", Text: "121.473701", Number: true},
		{Name: "Precision", Text: "65.000000", Number: true},
	}}
}

// Media is a message of a type other than text, with invented content. Types:
// image, voice, video, shortvideo, location, link.
func Media(openid, kind string) (Stimulus, error) {
	fields, known := map[string][]Field{
		"image":      {text("PicUrl", "http://mmbiz.qpic.cn/sim/0"), text("MediaId", "sim-image-1")},
		"voice":      {text("MediaId", "sim-voice-1"), text("Format", "amr"), text("MediaId16K", "sim-voice-1-16k")},
		"video":      {text("MediaId", "sim-video-1"), text("ThumbMediaId", "sim-thumb-1")},
		"shortvideo": {text("MediaId", "sim-video-2"), text("ThumbMediaId", "sim-thumb-2")},
		"location": {
			{Name: "Location_X", Text: "31.230416", Number: true}, {Name: "Location_Y", Text: "121.473701", Number: true},
			number("Scale", 15), text("Label", "上海市黄浦区"),
		},
		"link": {text("Title", "标题"), text("Description", "描述"), text("Url", "https://example.com/a")},
	}[kind]
	if !known {
		return Stimulus{}, fmt.Errorf("message type %q: use text, image, voice, video, shortvideo, location or link", kind)
	}
	return Stimulus{OpenID: openid, Type: kind, Fields: fields}, nil
}

// templateFinish is the receipt of a template message.
func templateFinish(openid string, msgID int64, status string) Stimulus {
	return Stimulus{OpenID: openid, Type: "event", Event: EventTemplateFinish, msgID: msgID,
		Fields: []Field{number("MsgID", msgID), text("Status", status)}}
}

// subscribeSent is the receipt of a subscription message. The failing values are
// invented: no public source shows one.
func subscribeSent(openid, template string, msgID int64, status string) Stimulus {
	code := int64(0)
	if status != "success" {
		code = 9001
	}
	item := []Field{text("TemplateId", template), number("MsgID", msgID), number("ErrorCode", code), text("ErrorStatus", status)}
	return Stimulus{OpenID: openid, Type: "event", Event: EventSubscribeSent, msgID: msgID,
		Fields: []Field{{Name: "SubscribeMsgSentEvent", Sub: []Field{{Name: "List", Sub: item}}}}}
}

// popup is a user's answer to the question whether an account may send
// subscription messages of these templates.
func popup(openid string, templates []string, accept bool) Stimulus {
	status := "reject"
	if accept {
		status = "accept"
	}
	var lists []Field
	for _, t := range templates {
		lists = append(lists, Field{Name: "List", Sub: []Field{
			text("TemplateId", t), text("SubscribeStatusString", status), number("PopupScene", 2)}})
	}
	return Stimulus{OpenID: openid, Type: "event", Event: EventPopup,
		Fields: []Field{{Name: "SubscribeMsgPopupEvent", Sub: lists}}}
}
