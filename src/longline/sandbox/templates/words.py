"""The made-up texts of generated templates."""

from __future__ import annotations

CATEGORIES = (
    (5, "Engineering"),
    (16, "DevOps"),
    (17, "HR"),
    (29, "SecOps"),
    (31, "Content Creation"),
    (32, "Market Research"),
    (33, "Social Media"),
    (34, "Invoice Processing"),
    (35, "Document Extraction"),
    (36, "File Management"),
    (37, "Lead Generation"),
    (38, "Lead Nurturing"),
    (39, "CRM"),
    (40, "Support Chatbot"),
    (41, "Ticket Management"),
    (42, "Internal Wiki"),
    (43, "Personal Productivity"),
    (44, "Crypto Trading"),
    (45, "Miscellaneous"),
    (46, "Project Management"),
    (47, "AI Chatbot"),
    (48, "AI RAG"),
    (49, "AI Summarization"),
    (51, "Multimodal AI"),
)
PARENTS = (
    (1, "AI"),
    (2, "Sales"),
    (3, "IT Ops"),
    (4, "Marketing"),
    (6, "Document Ops"),
    (7, "Other"),
    (8, "Support"),
)

APPS = (
    "Google Sheets", "Gmail", "Slack", "Telegram", "Notion", "Airtable", "HubSpot", "GitHub",
    "Postgres", "Discord", "Trello", "Jira", "Shopify", "Stripe", "WordPress", "Google Drive",
    "Outlook", "Zendesk", "Pipedrive", "Mattermost", "Todoist", "Baserow", "Supabase", "Mailchimp",
    "LinkedIn", "YouTube", "Google Calendar", "Linear", "Asana", "Redis",
)  # fmt: skip
MODELS = ("GPT-4o", "Gemini", "Claude", "Mistral", "Llama 3", "DeepSeek", "Cohere", "a local model")
VERBS = (
    "Sync", "Collect", "Summarize", "Classify", "Forward", "Back up", "Enrich", "Monitor",
    "Translate", "Deduplicate", "Schedule", "Archive", "Score", "Route", "Draft", "Import",
)  # fmt: skip
THINGS = (
    "new leads", "support tickets", "invoices", "daily reports", "meeting notes", "product reviews",
    "blog posts", "customer feedback", "order updates", "release notes", "job applications",
    "calendar events", "voice messages", "expense receipts", "error alerts", "newsletter sign-ups",
    "stock levels", "survey answers", "PDF contracts", "podcast episodes",
)  # fmt: skip
TITLE_PATTERNS = (
    "{verb} {thing} from {app} to {other}",
    "{verb} {thing} with {model} and {app}",
    "AI agent that can {verb} {thing} in {app}",
    "{verb} {thing} in {app} every morning",
    "{app} to {other}: {verb} {thing} automatically",
    "{verb} {app} {thing} using {model}",
    "Build a {app} chatbot for {thing} with {model}",
)
ODD_TITLE_PATTERNS = (
    "🤖 {verb} {thing} with {model} & {app}",
    "{verb} {thing} — {app} → {other}",
    "Café «{app}»: {verb} {thing} für {other}",
    "{app} から {other} へ: {thing}",
)
CYRILLIC_TITLES = (
    "Събиране на фактури от {app} в {other}",
    "Известия за нови поръчки в {app}",
    "Отчёт продаж из {app} в {other}",
    "Автоматизиране на срещи чрез {app} и {other}",
)
CYRILLIC_TEXT = (
    "Този шаблон събира новите записи, проверява ги и ги изпраща на екипа. "
    "Всяка сутрин излиза кратък отчет, грешките отиват в отделен лист. "
    "Преди първото пускане попълнете данните за достъп и изберете таблица."
)

FIRST_NAMES = (
    "Ada", "Boris", "Chloe", "Dario", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira",
    "Liam", "Mara", "Nils", "Olga", "Paul", "Quinn", "Rosa", "Sami", "Tess", "Umar", "Vera",
    "Wim", "Xenia", "Yusuf", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Albers", "Brandt", "Costa", "Dimov", "Eriksen", "Fontaine", "Garcia", "Haas", "Ivanova",
    "Jansen", "Keller", "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Rossi", "Silva",
    "Tanaka", "Weber",
)  # fmt: skip
BIOS = (
    "Automation consultant. I build small things that save long evenings.",
    "Developer, gardener, writer of too many scripts.",
    "We help teams connect the tools they already have.",
    "Operations by day, workflows by night.",
)

SENTENCES = (
    "The workflow starts on a schedule and reads the rows that have changed since the last run.",
    "Each entry is checked for missing fields before it goes any further.",
    "Duplicates are found by their address and left out.",
    "A language model writes a short summary and picks one of five labels.",
    "The result is written back, so that the next run knows where to begin.",
    "When something fails, a message with the reason goes to the channel of your choice.",
    "You can change the number of items in the first node.",
    "Replace the example spreadsheet with a copy of your own.",
    "The prompt asks for plain sentences and forbids guesses.",
    "Long texts are split into parts that overlap a little.",
    "Attachments are stored in a folder that is named after the sender.",
    "Numbers are rounded to two digits, dates are written as year, month and day.",
    "A wait of a few seconds keeps the service from refusing the next call.",
    "Everything runs without a database, which keeps the set-up short.",
    "The webhook answers at once; the slow work happens afterwards.",
    "Labels that nobody uses can be deleted without touching the rest.",
    "Test it with a single record before you switch it on.",
    "The second branch is for requests that need a person to look at them.",
    "Costs stay low because only new texts are sent to the model.",
    "Feel free to add a node that posts the report somewhere else.",
)
HEADINGS = (
    "Who is it for?", "How it works", "What it does", "Set up steps", "Requirements",
    "How to customise it", "Good to know", "Use cases",
)  # fmt: skip
STEPS = (
    "Add your credentials to the nodes that ask for them.",
    "Copy the spreadsheet and paste its address into the first node.",
    "Choose the folder in which files are kept.",
    "Set the time of the trigger.",
    "Run the workflow once by hand and look at the output.",
    "Switch the workflow on.",
)
